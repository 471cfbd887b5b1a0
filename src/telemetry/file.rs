//! Metrics as a file, for node_exporter's textfile collector: a reader sees the old one or the new
//! one whole.

use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::SUCCESS;
use analysis::report::openmetrics::{Earlier, Format, Route, RouteState, State, write};
use base::fault::Fault;

/// Replaces the file, whose readers may be other users.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), Fault> {
    let failed = |why: &std::io::Error| Fault::write("write the metrics", path, why);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    // A collector reads what ends in .prom.
    builder.prefix(".datapump-").suffix(".tmp").permissions(Permissions::from_mode(0o644));
    let temporary = builder.tempfile_in(folder.unwrap_or(Path::new(".")));
    let mut temporary = temporary.map_err(|why| failed(&why))?;
    temporary.write_all(text.as_bytes()).map_err(|why| failed(&why))?;
    temporary.persist(path).map(|_| ()).map_err(|why| failed(&why.error))
}

/// How each route last ended, and when it last succeeded, as an earlier process wrote it to the
/// same file.
pub(super) fn read_back(path: &Path, state: &mut State) {
    let mut text = String::new();
    let opened = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    if opened.is_err() {
        return;
    }
    for route in &mut state.routes {
        let begin = line_of(&route.route);
        let value = text.lines().find_map(|line| line.strip_prefix(&begin)?.trim().parse().ok());
        route.success_unix_s = value;
        route.earlier = text.lines().filter_map(|line| Earlier::read(line, &route.route)).collect();
    }
}

/// How the line of a route begins in what we write.
fn line_of(route: &Route) -> String {
    let route =
        RouteState { route: route.clone(), success_unix_s: Some(0.0), ..RouteState::default() };
    let text = write(&State { routes: vec![route], ..State::default() }, Format::Text);
    let line = text.lines().find(|line| line.starts_with(&format!("{SUCCESS}{{")));
    line.and_then(|line| line.strip_suffix('0')).unwrap_or(SUCCESS).to_string()
}

const BYTES_MAX: u64 = 1 << 20;
