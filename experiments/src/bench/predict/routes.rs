//! `cargo xtask bench predict --routes`: copies of one to three seconds over several routes, each
//! predicted from the others over its own route.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ::wan::{Profile, Wan};
use analysis::predict::path_model::{self, PathKey, PathModel};
use analysis::predict::route::{RouteKey, RouteModel};
use analysis::predict::score::{self, Pair};
use analysis::predict::{Plan, Prediction};
use analysis::record::sample::Record;
use analysis::report::predicted;
use tempfile::TempDir;

use super::Direction::{Here, Pull, Push};
use super::Fixture::{Disk, Memory};
use super::{Direction, Fixture, Options, remove, unused};
use crate::bench::fixture::random_file;
use crate::bench::shuffle::Shuffle;
use crate::bench::{build, far, machine};
use crate::page::table;
use crate::said;
use analysis::model::shape::Shape;
use xtask::packages;
use xtask::step::{output, root};

/// Where copies go from and to.
#[derive(Clone, Copy, Debug)]
struct Route {
    name: &'static str,
    direction: Direction,
    source: Fixture,
    sink: Fixture,
    over_wan: bool,
}

/// A copy that was made.
struct Made {
    route: usize,
    mb: u64,
    record: Record,
}

pub(super) fn predict(options: &Options) -> Result<(), String> {
    if options.program.is_none() {
        build()?;
    }
    packages::ensure(packages::FOR_WAN)?;
    let fixture = Ends::lay(options)?;
    let mut plans = Vec::new();
    for (place, route) in ROUTES.iter().enumerate() {
        let sizes = fixture.sizes(route)?;
        println!("{}: {sizes:?} MB", route.name);
        plans.extend(sizes.into_iter().map(|mb| (place, mb)));
    }
    let mut made = Vec::new();
    for at in Shuffle::from_seed(options.seed).order(plans.len()) {
        let (route, mb) = plans[at];
        let record = fixture.copy(&ROUTES[route], mb, &[])?;
        let elapsed_s = record.moved.elapsed_s;
        let (number, name) = (made.len() + 1, ROUTES[route].name);
        println!("{number} of {}: {name}, {mb} MB: {elapsed_s:.2} s", plans.len());
        made.push(Made { route, mb, record });
    }
    let page = page(&made, options);
    let date = output(Command::new("date").arg("+%F"))?;
    let path = unused(&root().join("runs"), &format!("{}-prediction-routes", date.trim()));
    fs::write(&path, &page).map_err(|why| format!("{}: {why}", path.display()))?;
    println!("\n{page}\nwritten to {}", path.display());
    Ok(())
}

/// Folders in memory and on the disk, a store, and a WAN.
struct Ends {
    memory: TempDir,
    disk: TempDir,
    program: PathBuf,
    wan: Wan,
}

impl Ends {
    fn lay(options: &Options) -> Result<Ends, String> {
        let program = options.program();
        let shm = Path::new("/dev/shm");
        let memory = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let folder = |parent: &Path| {
            let made = tempfile::Builder::new().prefix("datapump-routes-").tempdir_in(parent);
            made.map_err(|why| format!("{}: {why}", parent.display()))
        };
        Ok(Ends {
            memory: folder(&memory)?,
            disk: folder(&options.disk)?,
            wan: Wan::up(&Profile::from_words(LINK)?, Some(&program))?,
            program,
        })
    }

    /// Sizes of which copies take from one to three seconds after their login, by the rate of a
    /// copy that is not recorded.
    fn sizes(&self, route: &Route) -> Result<Vec<u64>, String> {
        let record = self.copy(route, PILOT_MB, &["--no-record"])?;
        let login_s = record.remote.map_or(0.0, |remote| remote.login_s);
        let mb_per_s = PILOT_MB as f64 / (record.moved.elapsed_s - login_s);
        let size = |place: u64| {
            let seconds = LEAST_S + (MOST_S - LEAST_S) * place as f64 / (COPIES - 1) as f64;
            (mb_per_s * seconds).round().max(1.0) as u64
        };
        Ok((0..COPIES).map(size).collect())
    }

    fn folder(&self, fixture: Fixture) -> &Path {
        match fixture {
            Memory => self.memory.path(),
            Disk => self.disk.path(),
        }
    }

    /// Makes a copy, and returns its record.
    fn copy(&self, route: &Route, mb: u64, more: &[&str]) -> Result<Record, String> {
        let told = |why: std::io::Error| format!("bench predict: {why}");
        let source = self.folder(route.source).join(format!("source-{mb}"));
        let target = self.folder(route.sink).join("target");
        if !source.exists() {
            random_file(&source, mb, mb * super::MB).map_err(told)?;
        }
        let mut command = Command::new(&self.program);
        command.args(["copy", "--quiet", "--json"]).args(more);
        // Both far hosts have one name here.
        let store = format!("{}.db", route.name);
        command.arg("--results").arg(self.disk.path().join(store));
        command.env_remove("DATAPUMP_NO_RECORD");
        let (mut from, mut to) = (source.display().to_string(), target.display().to_string());
        match route.direction {
            Here => {}
            Push => to = format!("far:{to}"),
            Pull => from = format!("far:{from}"),
        }
        if route.direction != Here {
            let ssh = if route.over_wan { self.wan.ssh_command() } else { far::ssh_command() };
            command.args(["--ssh", &ssh, "--remote-datapump"]).arg(&self.program);
        }
        command.args([from, to]);
        let mut command =
            if route.over_wan { self.wan.near(command).map_err(told)? } else { command };
        let said = output(&mut command);
        remove(&target).map_err(told)?;
        fs::remove_file(&source).map_err(told)?;
        said::record(&said?)
    }
}

/// What the copies over one route were predicted to take.
#[derive(Default)]
struct Told {
    /// When each was made, from those before it.
    then: Vec<Pair>,
    /// From all others over the same route and of its kind.
    route: Vec<Pair>,
    /// From all others over the same path, by the path's model alone.
    path: Vec<Pair>,
}

impl Told {
    fn add(&mut self, other: Told) {
        self.then.extend(other.then);
        self.route.extend(other.route);
        self.path.extend(other.path);
    }
}

fn told(made: &[Made], route: usize) -> Told {
    let mut told = Told::default();
    for (place, one) in made.iter().enumerate().filter(|(_, one)| one.route == route) {
        let others = made.iter().enumerate();
        let others = others.filter(|(other, one)| *other != place && one.route == route);
        let others: Vec<Record> = others.map(|(_, one)| one.record.clone()).collect();
        told.then.extend(Pair::of_time(&one.record));
        told.route.extend(left_out(&one.record, &others));
        told.path.extend(by_path(&one.record, &others));
    }
    told
}

/// A copy as it was known after its login.
fn plan(record: &Record) -> Plan {
    let mut shape = Shape::default();
    shape.add(record.moved.bytes);
    Plan {
        shape,
        carrier: if record.conditions.carrier == "tcp" { "tcp" } else { "memory" },
        streams: record.options.streams,
        source: String::new(),
        sink: String::new(),
        resident: 1.0,
        login_s: record.remote.as_ref().map_or(0.0, |remote| remote.login_s),
        near_is_source: record.remote.as_ref().is_none_or(|remote| remote.is_push),
        same_machine: true,
        rate_limit_bytes_per_s: None,
        unusual: Vec::new(),
    }
}

fn pair(record: &Record, prediction: &Prediction) -> Pair {
    Pair { expected: prediction.elapsed_s, observed: record.moved.elapsed_s }
}

fn left_out(record: &Record, others: &[Record]) -> Option<Pair> {
    let key = RouteKey::of(record);
    let models = RouteModel::all(others, |known| *known == key);
    let route = models.first()?;
    Some(pair(record, &Prediction::on_route(&plan(record), None, None, route)))
}

fn by_path(record: &Record, others: &[Record]) -> Option<Pair> {
    let remote = record.remote.as_ref()?;
    let sought = PathKey {
        far_host: remote.host.clone(),
        near_is_source: remote.is_push,
        seal: record.options.seal.clone(),
        congestion: record.options.congestion.clone(),
        window_bytes: record.options.window_bytes,
        pace: record.options.pace.clone(),
    };
    let model = PathModel::of(&path_model::crossings(others, &sought))?;
    Some(pair(record, &Prediction::over(&plan(record), None, None, Some(&model))?))
}

fn page(made: &[Made], options: &Options) -> String {
    let mut all = Told::default();
    let mut rows = Vec::new();
    for (place, route) in ROUTES.iter().enumerate() {
        let told = told(made, place);
        for (how, pairs) in
            [("route", &told.route), ("path", &told.path), ("when made", &told.then)]
        {
            rows.extend(scored(&format!("{}, {how}", route.name), pairs));
        }
        all.add(told);
    }
    for (how, pairs) in [("route", &all.route), ("path", &all.path), ("when made", &all.then)] {
        rows.extend(scored(&format!("all, {how}"), pairs));
    }
    let mut text = format!(
        "# Copies predicted from others over their route\n\n{} copies over {} routes in a random \
         order (seed {}), recorded in a store for each route, without a model of any host; \
         each took one to three seconds after its login. Predicted three ways: from all other \
         copies over its route and of its kind (route), from all others over its path by the \
         path's model alone (path, as before), and as the copy itself said when it was made, \
         from those before it (when made). The command: `cargo xtask bench predict \
         --routes`.\n\n",
        made.len(),
        ROUTES.len(),
        options.seed,
    );
    text.push_str(&table(&COLUMNS, &rows));
    text.push_str("\n| route | MB | seconds |\n|---|---|---|\n");
    for one in made {
        let (name, seconds) = (ROUTES[one.route].name, one.record.moved.elapsed_s);
        let _ = writeln!(text, "| {name} | {} | {seconds:.3} |", one.mb);
    }
    text.push_str(&format!("\n- the WAN: {}\n", LINK.join(" ")));
    for note in machine::notes(&options.disk) {
        let _ = writeln!(text, "- {note}");
    }
    text
}

fn scored(name: &str, pairs: &[Pair]) -> Vec<Vec<String>> {
    let row = |(length, score): (&str, score::Score)| {
        let mut row = vec![name.to_string(), length.to_string()];
        row.extend(predicted::score_cells(&score));
        row
    };
    score::by_length(pairs).into_iter().map(row).collect()
}

const ROUTES: [Route; 4] = [
    Route { name: "here", direction: Here, source: Memory, sink: Disk, over_wan: false },
    Route { name: "push", direction: Push, source: Memory, sink: Memory, over_wan: false },
    Route { name: "pull", direction: Pull, source: Disk, sink: Memory, over_wan: false },
    Route { name: "WAN", direction: Push, source: Memory, sink: Memory, over_wan: true },
];
const LINK: &[&str] = &["--rate", "100Mbit", "--rtt", "40ms", "--queue", "1bdp"];
/// Of each route.
const COPIES: u64 = 14;
const PILOT_MB: u64 = 40;
const LEAST_S: f64 = 1.1;
const MOST_S: f64 = 3.0;
const COLUMNS: [&str; 8] = [
    "route, predicted from",
    "copies",
    "n",
    "bias",
    "median error",
    "width",
    "within",
    "interval score",
];
