//! Digests besides (`--digest-also`): equal to those of Python and coreutils, in receipts, extended
//! attributes and tags; and `verify`, which reads what those programs write.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::data;
use crate::support::gateway::{Gateway, file_of};
use crate::support::{Scene, each, need};

const ALL: &str = "--digest-also adler32,crc32c,md5,sha256";

/// A thousand files, from none to many requests long.
fn lay(scene: &Scene) {
    fs::create_dir_all(scene.path("t/d")).unwrap();
    for number in 0..1000_u64 {
        let size = match number % 100 {
            0 => 64 << 10,
            1 => (64 << 10) + 1,
            2 => 200_000 + number,
            _ => number * 17 % 6000,
        };
        let odd = if number == 7 { "new\nline\\" } else { "" };
        file_of(&scene.path(format!("t/d/{number}{odd}")), size, number);
    }
}

/// Compares a receipt, and with `attributes` those of the files, with what Python computes.
fn check(receipt: &Path, root: &Path, attributes: bool) {
    let mut python = Command::new(need("python3", "python3"));
    python.arg("-c").arg(PYTHON).arg(receipt).arg(root);
    let ran = python.arg(if attributes { "attributes" } else { "" }).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(text.trim(), "1000 files, 4000 digests");
}

/// The lists of a receipt as one, `NAME.all`.
fn join_lists(receipt: &Path) {
    let name = |kind: &str| {
        receipt.with_file_name(format!("{}.{kind}", receipt.file_name().unwrap().to_str().unwrap()))
    };
    let lists = ["adler32", "crc32c", "md5", "sha256"].map(|kind| fs::read(name(kind)).unwrap());
    fs::write(name("all"), lists.concat()).unwrap();
}

/// By zlib and hashlib, CRC-32C by its definition, XRootD's attribute by its layout.
const PYTHON: &str = r#"
import hashlib, os, re, struct, sys, zlib
receipt, root, attributes = sys.argv[1:4]
table = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    table.append(byte)
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return b"%08x" % (crc ^ 0xFFFFFFFF)
how = {b"ADLER32": lambda data: b"%08x" % zlib.adler32(data), b"CRC32C": crc32c,
       b"MD5": lambda data: hashlib.md5(data).hexdigest().encode(),
       b"SHA256": lambda data: hashlib.sha256(data).hexdigest().encode()}
files, digests = set(), 0
for line in open(receipt, "rb"):
    line = line.rstrip(b"\n")
    plain = line.removeprefix(b"\\")
    found = re.fullmatch(rb"([A-Z0-9]+) \((.*)\) = ([0-9a-f]+)", plain, re.S)
    if not found:
        continue
    tag, name, hexed = found.groups()
    if plain != line:
        name = name.replace(b"\\\\", b"\0").replace(b"\\n", b"\n").replace(b"\0", b"\\")
    path = os.path.join(os.fsencode(root), name)
    data = open(path, "rb").read()
    assert how[tag](data) == hexed, line
    if attributes:
        kind = tag.decode().lower()
        assert os.getxattr(path, "user.checksum." + kind) == hexed, line
        value = os.getxattr(path, "user.XrdCks." + kind)
        of, mtime, later, zero, length, sum = struct.unpack(">16sqi3sB64s", value)
        assert of.rstrip(b"\0").decode() == kind and zero == b"\0\0\0", value
        assert mtime == int(os.stat(path).st_mtime) and later >= 0, value
        assert sum[:length].hex().encode() == hexed and not any(sum[length:]), value
    files.add(name)
    digests += 1
print(len(files), "files,", digests, "digests")
"#;

#[test]
fn a_thousand_files_have_the_digests_that_others_compute() {
    let scene = Scene::new();
    lay(&scene);
    fs::set_permissions(scene.path("t/d/1"), std::os::unix::fs::PermissionsExt::from_mode(0o444))
        .unwrap();
    let ways = [("@/t", "@/here"), ("@/t", "far:@/there"), ("far:@/t", "@/back")];
    each(ways.iter().enumerate(), |(number, (from, to))| {
        let options = format!("--request-size 64K --manifest @/sums{number} {ALL}");
        scene.succeed(&format!("copy -r {from}/ {to} {options}"));
        let target = to.trim_start_matches("far:").trim_start_matches("@/");
        join_lists(&scene.path(format!("sums{number}")));
        check(&scene.path(format!("sums{number}.all")), &scene.path(target), true);
        let mode = fs::metadata(scene.path(format!("{target}/d/1"))).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o444);
    });
    // Other programs read the receipt and the lists beside it, and this one reads theirs.
    let lists = [("b3sum", "sums0"), ("md5sum", "sums0.md5"), ("sha256sum", "sums0.sha256")];
    for (program, list) in lists {
        let mut other =
            Command::new(need(program, if program == "b3sum" { program } else { "coreutils" }));
        other.args(["--check", "--quiet"]).arg(scene.path(list));
        let ran = other.current_dir(scene.path("here")).output().unwrap();
        assert!(ran.status.success(), "{program}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    let names = ["d/0", "d/1", "d/2", "d/7new\nline\\"];
    let md5 = ("md5sum", &[&[][..], &["--tag"], &["--binary"]][..], "MD5");
    let sha256 = ("sha256sum", &[&[][..], &["--tag"], &["--binary"]][..], "SHA256");
    let xxh =
        ("xxhsum", &[&["-H0"][..], &["-H1"], &["-H2"], &["-H3"], &["-H2", "--tag"]][..], "XXH");
    for (program, all_options, kind) in [md5, sha256, xxh] {
        for options in all_options {
            let package = if program == "xxhsum" { "xxhash" } else { "coreutils" };
            let mut other = Command::new(need(program, package));
            // xxhsum does not escape names.
            let names = if program == "xxhsum" { &names[..3] } else { &names };
            let ran = other.args(*options).args(names).current_dir(scene.path("here")).output();
            fs::write(scene.path("theirs"), ran.unwrap().stdout).unwrap();
            let ran = scene.succeed("verify @/theirs @/here").stdout_text();
            let all = format!("all {} files match", names.len());
            let by = format!(" by {kind}");
            assert!(ran.contains(&all) && ran.contains(&by), "{program} {options:?}: {ran}");
        }
    }
    scene.succeed("verify @/sums0 @/here");
    let mut bytes = fs::read(scene.path("here/d/2")).unwrap();
    bytes[100_000] ^= 1;
    fs::write(scene.path("here/d/2"), bytes).unwrap();
    let mut tagged = Command::new(need("sha256sum", "coreutils"));
    let named = tagged.args(["--tag", "d/2"]).current_dir(scene.path("t")).output().unwrap();
    fs::write(scene.path("named"), named.stdout).unwrap();
    for manifest in ["sums0", "named"] {
        let ran = scene.run(&format!("verify @/{manifest} @/here"));
        assert_eq!(ran.code, 6, "{manifest}: {ran}");
    }
}

/// In a store they are tags, and the receipt has them too.
#[test]
fn objects_have_tags() {
    let (gateway, scene) = (Gateway::new(), Scene::new());
    for (name, size) in [("small", 1000), ("long", 20 << 20), ("none", 0)] {
        file_of(&scene.path("a"), size, size);
        let options = format!("--manifest @/sums --overwrite always {ALL}");
        gateway.succeed(&scene, &format!("copy @/a s3:/{name} {options}"));
        join_lists(&scene.path("sums"));
        let receipt = fs::read_to_string(scene.path("sums.all")).unwrap();
        let object = gateway.object(name);
        let tags = attributes(&object);
        let mut found = 0;
        for line in receipt.lines().filter(|line| line.contains(") = ")) {
            let (front, hex) = line.rsplit_once(" = ").unwrap();
            let kind = front.split(' ').next().unwrap().to_lowercase();
            assert!(tags.contains(&format!("checksum.{kind}")) && tags.contains(hex), "{tags}");
            found += 1;
        }
        assert_eq!(found, 4, "{receipt}");
        let mut sha256 = Command::new(need("sha256sum", "coreutils"));
        let ran = sha256.arg(scene.path("a")).output().unwrap();
        let expect = String::from_utf8_lossy(&ran.stdout)[..64].to_string();
        assert!(receipt.contains(&expect), "{receipt}");
    }
}

/// All attributes of a file, as text.
fn attributes(path: &Path) -> String {
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(path, &mut names[..]).unwrap();
    let mut text = String::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 4096];
        let len = rustix::fs::getxattr(path, name, &mut value[..]).unwrap();
        text.push_str(&String::from_utf8_lossy(&value[..len]));
    }
    text
}

#[test]
fn what_needs_a_file_is_refused_without_one() {
    let scene = Scene::new();
    fs::write(scene.path("a"), data::bytes(1, 100_000)).unwrap();
    let ran = scene.run("copy @/a null: --digest-also md5");
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.stderr.contains("DST keeps nothing"), "{ran}");
    let ran = scene.run("copy @/a @/b --digest-also sha1");
    assert_eq!(ran.code, 2, "{ran}");
    let line = "copy @/a null: --digest-also adler32,crc32c --json --request-size 64K";
    let ran = scene.succeed(line);
    let file = ran.events().into_iter().find(|event| event["event"] == "file").unwrap();
    assert!(file["also"]["adler32"].is_string() && file["also"]["crc32c"].is_string(), "{file}");
}
