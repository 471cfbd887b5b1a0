//! Digests of what was made, in the forms that `sha256sum --check` and `b3sum --check` read.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::listed;
use xtask::step::output;

pub(super) fn write(folder: &Path) -> Result<(), String> {
    let names: Vec<String> = listed(folder)?
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_string()))
        .collect();
    let sha256 = output(Command::new("sha256sum").args(&names).current_dir(folder))?;
    let mut blake3 = String::new();
    for name in &names {
        let bytes = fs::read(folder.join(name)).map_err(|why| format!("{name}: {why}"))?;
        blake3.push_str(&format!("{}  {name}\n", blake3::hash(&bytes).to_hex()));
    }
    for (name, text) in [("SHA256SUMS", sha256), ("B3SUMS", blake3)] {
        fs::write(folder.join(name), text).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_tools() {
        let folder = std::env::temp_dir().join(format!("xtask-sums-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a"), b"abc").unwrap();
        let written = write(&folder);
        let sums = ["SHA256SUMS", "B3SUMS"].map(|name| fs::read_to_string(folder.join(name)));
        fs::remove_dir_all(&folder).unwrap();
        written.unwrap();
        let expect = [
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n",
            "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85  a\n",
        ];
        assert_eq!(sums.map(Result::unwrap), expect.map(str::to_string));
    }
}
