#!/usr/bin/env bash
# cachestat(2) of a file on overlayfs is 0 although the file was just read: the pages are those of
# the file below. mincore(2) of a mapping finds them, and posix_fadvise(DONTNEED) drops them.
# Met by measurements in containers; datapump asks mincore there (mover/src/io/page_cache.rs).
# Needs root, to mount, and Python. Exits 0 while Linux does so, 1 when that changes.
set -eu
work=$(mktemp -d)
trap 'umount "$work/merged" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"
mkdir lower upper scratch merged
head -c 4194304 /dev/urandom > lower/file
sync
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=scratch merged
uname -r
cat > look.py <<'P'
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
def look(what, fd, size):
    whole, found = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    libc.syscall(451, fd, whole, found, 0)
    pages = ctypes.create_string_buffer(size // 4096)
    libc.mincore(libc.mmap(None, size, 1, 1, fd, 0), size, pages)
    print(what, "cachestat", found[0], "mincore", sum(page & 1 for page in pages.raw))
for name in sys.argv[1:]:
    fd = os.open(name, os.O_RDONLY)
    size = len(os.read(fd, 4 << 20))
    look(name + ", read:", fd, size)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    look(name + ", dropped:", fd, size)
P
python3 look.py lower/file merged/file | tee seen
grep -q '^merged/file, read: cachestat 0 mincore 1024$' seen || { echo "this has changed" >&2; exit 1; }
