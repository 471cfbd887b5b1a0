#!/usr/bin/env bash
# s3fs 1.90: the mode and the time that a file is given between an fsync and its close are lost,
# without an error; those that it is given before the fsync are kept.
# Met by the exam of file systems; datapump gives both before its last sync
# (tests/integration/destinations.rs::every_file_system_sits_the_exam).
# Needs root and /dev/fuse. Exits 0 while s3fs does so, 1 when that changes.
set -eu
version=5.2.1
work=$(mktemp -d)
server=
trap 'umount "$work/at" || true; test -z "$server" || kill "$server"; rm -rf "$work"' EXIT
cd "$work"
python3 -m venv tools
tools/bin/pip install --quiet "moto[s3]==$version" flask==3.1.2 flask-cors==6.0.1
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret
unset AWS_CA_BUNDLE || true
s3fs --version | head -1
mkdir at
port=$((20000 + RANDOM % 9000))
tools/bin/moto_server -H 127.0.0.1 -p "$port" 2>log &
server=$!
url=http://127.0.0.1:$port
for _ in $(seq 100); do
    curl -s -o /dev/null -X PUT "$url/bucket" && break
    sleep 0.1
done
mount_it() { s3fs bucket at -o "url=$url,use_path_request_style"; }
mount_it
cat >write.py <<'P'
import os
for name in ["before", "after"]:
    fd = os.open("at/" + name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, b"bytes")
    if name == "after":
        os.fsync(fd)
    os.fchmod(fd, 0o640)
    os.utime(fd, (1_000_000_000, 1_000_000_000))
    os.fsync(fd)
    os.close(fd)
    os.rename("at/" + name, "at/" + name + "-it")
P
python3 write.py
# What it shows until then may be older than what is in the store.
umount at
mount_it
for name in before after; do
    stat -c '%n: mode %a, time %Y' "at/$name-it" | tee -a seen
done
grep -q '^at/before-it: mode 640, time 1000000000$' seen || { echo "it does otherwise now"; exit 1; }
if grep -q '^at/after-it: mode 640, time 1000000000$' seen; then
    echo "both are kept now"
    exit 1
fi
