#!/usr/bin/env bash
# gitignore(5): asterisks in a row that are not a whole part of the path "are regular asterisks". So
# 'x**/*' should say what 'x*/*' says: what is in folders whose names begin with x. git reads it
# otherwise: the folder 'x' itself is ignored, too, and so is all that is in it.
# Met by random patterns beside `git check-ignore`; datapump reads it as the page says
# (tests/integration/patterns.rs leaves such patterns out of the comparison).
# Exits 0 while git does so, 1 when that changes.
set -eu
version=1:2.39.5-0+deb12u3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
apt-get download "git=$version" >/dev/null
dpkg -x git_*.deb installed
git() { PATH="$work/installed/usr/lib/git-core:$PATH" "$work/installed/usr/bin/git" "$@"; }
export HOME=$work GIT_CONFIG_NOSYSTEM=1 GIT_EXEC_PATH=$work/installed/usr/lib/git-core
export GIT_TEMPLATE_DIR=$work/installed/usr/share/git-core/templates

git --version
git init -q tree
cd tree
mkdir -p x/inner
touch x/file x/inner/file
seen=
for pattern in 'x*/*' 'x**/*' 'x*/**' 'x**/**'; do
    printf '%s\n' "$pattern" >.gitignore
    ignored=$(git check-ignore --no-index x || echo nothing)
    echo "$pattern: of the folder x itself: $ignored"
    seen="$seen $ignored"
done
[ "$seen" = ' nothing x nothing x' ] || { echo "this has changed:$seen" >&2; exit 1; }
