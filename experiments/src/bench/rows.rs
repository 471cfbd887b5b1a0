//! The compared tools: one row per tool and set of options. Rows are data; `race.rs` runs them.

use super::{Options, machine};

/// What is moved; only rows of the same scenario may be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scenario {
    Clear,
    Sealed,
    Small,
    Wire,
    StartUp,
    Disk,
    Memory,
    /// No option beside a grid of options.
    Grid(Grid),
}

/// What is moved in a grid: each is one of the scenarios above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Grid {
    Sealed,
    Clear,
    Small,
    Wire,
    Disk,
}

impl Scenario {
    pub(super) const ALL: &[Scenario] = &[
        Scenario::Clear,
        Scenario::Sealed,
        Scenario::Small,
        Scenario::Wire,
        Scenario::StartUp,
        Scenario::Disk,
        Scenario::Memory,
        Scenario::Grid(Grid::Sealed),
        Scenario::Grid(Grid::Clear),
        Scenario::Grid(Grid::Small),
        Scenario::Grid(Grid::Wire),
        Scenario::Grid(Grid::Disk),
    ];

    /// The word for `--only`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Scenario::Clear => "clear",
            Scenario::Sealed => "sealed",
            Scenario::Small => "small",
            Scenario::Wire => "wire",
            Scenario::StartUp => "start",
            Scenario::Disk => "disk",
            Scenario::Memory => "memory",
            Scenario::Grid(of) => of.word(),
        }
    }

    pub(super) fn heading(self) -> &'static str {
        match self {
            Scenario::Clear => "One large file, clear, tmpfs to tmpfs over loopback",
            Scenario::Sealed => "One large file, sealed, tmpfs to tmpfs over loopback",
            Scenario::Small => "Small files of 4 to 64 KiB, tmpfs to tmpfs over loopback",
            Scenario::Wire => "Nothing to nothing over loopback",
            Scenario::StartUp => "A file of 2 bytes over ssh",
            Scenario::Disk => "Disk to the same disk, direct",
            Scenario::Memory => "Memory of each side",
            Scenario::Grid(of) => of.heading(),
        }
    }

    /// Start-up is left out where both tools report the time of the transfer alone.
    pub(super) fn judged_by_own_clock(self) -> bool {
        matches!(self, Scenario::Wire | Scenario::Disk | Scenario::Grid(Grid::Wire | Grid::Disk))
    }

    /// The grids are run only when they are asked for, by their own words or all of them: they have
    /// more rows than any other scenario, and compare datapump with itself.
    pub(super) fn is_wanted(self, options: &Options) -> bool {
        match options.only.as_slice() {
            [] => !matches!(self, Scenario::Grid(_)),
            only => only.iter().any(|word| self.is_called(word)),
        }
    }

    /// By its own word, or by that of all grids.
    pub(super) fn is_called(self, word: &str) -> bool {
        word == self.word() || (word == GRIDS && matches!(self, Scenario::Grid(_)))
    }
}

impl Grid {
    const ALL: &[Grid] = &[Grid::Sealed, Grid::Clear, Grid::Small, Grid::Wire, Grid::Disk];

    fn word(self) -> &'static str {
        match self {
            Grid::Sealed => "grid-sealed",
            Grid::Clear => "grid-clear",
            Grid::Small => "grid-small",
            Grid::Wire => "grid-wire",
            Grid::Disk => "grid-disk",
        }
    }

    fn heading(self) -> &'static str {
        match self {
            Grid::Sealed => "No option beside a grid of options: one large file, sealed",
            Grid::Clear => "No option beside a grid of options: one large file, clear",
            Grid::Small => "No option beside a grid of options: small files, sealed",
            Grid::Wire => "No option beside a grid of options: nothing to nothing",
            Grid::Disk => "No option beside a grid of options: disk to the same disk",
        }
    }

    /// The name of the row that has no option of the grid.
    pub(super) fn default_row(self) -> &'static str {
        match self {
            Grid::Sealed => "no option, sealed",
            Grid::Clear => "no option, clear",
            Grid::Small => "no option, tree",
            Grid::Wire => "no option, null",
            Grid::Disk => "no option, disk",
        }
    }

    /// Files are read and written by an engine; without files there is nothing to compare.
    fn engines(self) -> &'static [&'static str] {
        match self {
            Grid::Wire => &["threads"],
            _ => &["threads", "uring"],
        }
    }

    fn row(self, name: &str, options: &str, sizes: Sizes) -> Row {
        let row = |script: String, bytes: u64| Row::new(Scenario::Grid(self), name, &script, bytes);
        let tls = ("TLS 1.3", "blake3", "file");
        match self {
            Grid::Sealed => row(format!("dp {options}$SRC/big far:$DST/"), sizes.big)
                .arrives(Arrives::Same("big"))
                .datapump(tls),
            Grid::Clear => {
                let script = format!("dp {options}--seal off --digest crc64 $SRC/big far:$DST/");
                let row = row(script, sizes.big).arrives(Arrives::Same("big"));
                row.datapump(("off", "crc64", "file"))
            }
            Grid::Small => row(format!("dp {options}-r $SRC/small far:$DST/"), sizes.small)
                .arrives(Arrives::Same("small"))
                .datapump(tls),
            Grid::Wire => {
                let ends = "null:$WIRE_BYTES far:null:";
                let script = format!("steady {options}--seal off --digest none {ends}");
                let row = row(script, sizes.wire).datapump(("none", "none", "no file"));
                Row { clock: Clock::Steady, ..row }
            }
            Grid::Disk => {
                let row = row(format!("dp {options}$DISK/src $DISK/dst/f"), sizes.big);
                let row = row.arrives(Arrives::Disk).terms(("one process", "blake3", "file"));
                Row { clock: Clock::Datapump, ..row }
            }
        }
    }
}

pub(super) struct Row {
    pub scenario: Scenario,
    pub name: String,
    /// Programs without which the row is skipped, and reported as skipped.
    pub needs: Vec<&'static str>,
    pub serve: Option<Serve>,
    /// A bash script; `dp` and `steady` call datapump.
    pub script: String,
    pub bytes: u64,
    pub arrives: Arrives,
    pub clock: Clock,
    pub login: Login,
    pub terms: Terms,
}

/// A login over ssh as part of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// The row has none, or a tool whose start counts.
    Counted,
    /// A row of ours with a login: it is judged without the login of the same scenario and round.
    Subtracted,
    /// The login itself.
    Alone,
}

/// The far end of tools that do not start it themselves. It is ready before the clock starts.
#[derive(Clone)]
pub(super) struct Serve {
    pub script: String,
    pub ready: Ready,
    pub end: ServeEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// It listens on `$P`.
    Port,
    /// It has written its URL to `$LOG/wdt.url`.
    Url,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServeEnd {
    /// It ends by itself, and its end is part of the transfer.
    Waited,
    Stopped,
}

/// The expected content of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrives {
    /// `src/NAME` as `dst/f`.
    File(&'static str),
    /// `src/NAME` as `dst/NAME`.
    Same(&'static str),
    Disk,
    Nothing,
}

/// The clock for the judged rate, besides that of the whole command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    EndToEnd,
    Datapump,
    /// datapump's progress events, without start and end.
    Steady,
    Iperf,
    Fio,
}

/// What must be equal for a comparison of two rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    pub congestion: String,
    pub sealing: &'static str,
    pub digest: &'static str,
    pub fsync: &'static str,
}

/// Payload bytes of the data sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub big: u64,
    pub small: u64,
    pub wire: u64,
}

/// Every row of the requested scenarios; the wire with each of these congestion controls.
pub(super) fn rows(options: &Options, sizes: Sizes, congestions: &[String]) -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(clear(sizes));
    rows.extend(sealed(sizes));
    rows.extend(small(sizes));
    rows.extend(wire(sizes, congestions));
    rows.extend(start_up());
    rows.extend(disk(sizes));
    rows.extend(memory(sizes));
    rows.extend(Grid::ALL.iter().flat_map(|of| grid(*of, sizes)));
    let logs_in = |scenario: &Scenario| {
        let of = |row: &Row| row.scenario == *scenario && row.login == Login::Subtracted;
        rows.iter().any(of)
    };
    let scenarios: Vec<Scenario> = Scenario::ALL.iter().copied().filter(logs_in).collect();
    rows.extend(scenarios.into_iter().map(login));
    rows.retain(|row| row.scenario.is_wanted(options));
    rows
}

fn clear(sizes: Sizes) -> Vec<Row> {
    let row = |name: &str, script: &str| Row::new(Scenario::Clear, name, script, sizes.big);
    let file = |row: Row| row.arrives(Arrives::File("big"));
    let same = |row: Row| row.arrives(Arrives::Same("big"));
    let none = ("none", "none", "none");
    vec![
        file(row("socat", "socat -b 1048576 -u OPEN:$SRC/big TCP:127.0.0.1:$P"))
            .served(SOCAT_TO_FILE)
            .terms(none)
            .needs("socat"),
        same(row(
            "tar over socat",
            "tar -C $SRC -cf - big | socat -b 1048576 -u - TCP:127.0.0.1:$P",
        ))
        .served(SOCAT_TO_TAR)
        .terms(none)
        .needs("socat"),
        file(row("rsync daemon -W", "rsync -W $SRC/big rsync://127.0.0.1:$P/b/dst/f"))
            .served_until_stopped(RSYNC_DAEMON)
            .terms(("none", "rsync's own", "none"))
            .needs("rsync"),
        file(row("GridFTP -p 2", "globus-url-copy -p 2 file://$SRC/big ftp://127.0.0.1:$P$DST/f"))
            .served_until_stopped(GRIDFTP)
            .terms(none)
            .needs("globus-gridftp-server")
            .needs("globus-url-copy"),
        same(row("wdt 8 ports", WDT_BIG)).served_by_wdt("$DST", "none").terms(none),
        file(row("bbcp -s 2", BBCP)).terms(none).needs("bbcp"),
        same(row(
            "datapump crc64",
            "dp --streams 1 --seal off --digest crc64 --fsync off $SRC/big far:$DST/",
        ))
        .datapump(("off", "crc64", "off")),
        same(row(
            "datapump no digest",
            "dp --streams 1 --seal off --digest none --fsync off $SRC/big far:$DST/",
        ))
        .datapump(("off", "none", "off")),
        same(row("datapump blake3", "dp --streams 1 --seal off --fsync off $SRC/big far:$DST/"))
            .datapump(("off", "blake3", "off")),
        same(row(
            "datapump auth blake3",
            "dp --streams 1 --seal auth --fsync off $SRC/big far:$DST/",
        ))
        .datapump(("auth", "blake3", "off")),
    ]
}

fn sealed(sizes: Sizes) -> Vec<Row> {
    let row = |name: &str, script: &str| {
        Row::new(Scenario::Sealed, name, script, sizes.big).arrives(Arrives::Same("big"))
    };
    let ssh = ("ssh default", "none", "none");
    let gcm = ("ssh aes128-gcm", "none", "none");
    let aes = ("aes128-gcm", "none", "none");
    let one_hash = ("TLS 1.3", "blake3, source", "file");
    vec![
        row("scp", "scp -F $CFG -q $SRC/big far:$DST/").terms(ssh).needs("scp"),
        row("scp aes128-gcm", "scp -F $CFG -q -c aes128-gcm@openssh.com $SRC/big far:$DST/")
            .terms(gcm)
            .needs("scp"),
        row("rsync over ssh", "rsync -W -e \"$SSH\" $SRC/big far:$DST/")
            .terms(("ssh default", "rsync's own", "none"))
            .needs("rsync"),
        row("tar over ssh aes128-gcm", TAR_SSH_BIG).terms(gcm).needs("ssh"),
        row("mscp -n 2 aes128-gcm", MSCP).terms(gcm).needs("mscp"),
        row("rclone over sftp", &rclone("$SRC/big :sftp:$DST/")).terms(RCLONE).needs("rclone"),
        row("wdt 8 ports aes128-gcm", WDT_BIG).served_by_wdt("$DST", "aes128gcm").terms(aes),
        row("datapump tls blake3", "dp --streams 1 --fsync off $SRC/big far:$DST/")
            .datapump(("TLS 1.3", "blake3", "off")),
        row("datapump tls crc64", "dp --streams 1 --digest crc64 --fsync off $SRC/big far:$DST/")
            .datapump(("TLS 1.3", "crc64", "off")),
        row("datapump, default options", "dp $SRC/big far:$DST/")
            .datapump(("TLS 1.3", "blake3", "file")),
        row("datapump, hashed at the source", "dp --verify source $SRC/big far:$DST/")
            .datapump(one_hash),
    ]
}

fn small(sizes: Sizes) -> Vec<Row> {
    let row = |name: &str, script: &str| {
        Row::new(Scenario::Small, name, script, sizes.small).arrives(Arrives::Same("small"))
    };
    let none = ("none", "none", "none");
    let aes = ("aes128-gcm", "none", "none");
    vec![
        row(
            "tar over socat, tree",
            "tar -C $SRC -cf - small | socat -b 1048576 -u - TCP:127.0.0.1:$P",
        )
        .served(SOCAT_TO_TAR)
        .terms(none)
        .needs("socat"),
        row("tar over ssh aes128-gcm, tree", TAR_SSH_SMALL)
            .terms(("ssh aes128-gcm", "none", "none"))
            .needs("ssh"),
        row("rsync daemon, tree", "rsync -a $SRC/small rsync://127.0.0.1:$P/b/dst/")
            .served_until_stopped(RSYNC_DAEMON)
            .terms(("none", "rsync's own", "none"))
            .needs("rsync"),
        row("rsync over ssh, tree", "rsync -a -e \"$SSH\" $SRC/small far:$DST/")
            .terms(("ssh default", "rsync's own", "none"))
            .needs("rsync"),
        row("rclone over sftp, tree", &rclone("$SRC/small :sftp:$DST/small"))
            .terms(RCLONE)
            .needs("rclone"),
        row("rclone over sftp, 16 files at once, no digest, tree", &rclone(RCLONE_TREE))
            .terms((RCLONE.0, "none", "none"))
            .needs("rclone"),
        row("scp -r, tree", "scp -F $CFG -r -q $SRC/small far:$DST/")
            .terms(("ssh default", "none", "none"))
            .needs("scp"),
        row("wdt 8 ports, tree", WDT_TREE).served_by_wdt("$DST/small", "none").terms(none),
        row("wdt 8 ports aes128-gcm, tree", WDT_TREE)
            .served_by_wdt("$DST/small", "aes128gcm")
            .terms(aes),
        row("datapump tls blake3, tree", "dp -r --fsync off $SRC/small far:$DST/")
            .datapump(("TLS 1.3", "blake3", "off")),
        row(
            "datapump crc64, tree",
            "dp -r --seal off --digest crc64 --fsync off $SRC/small far:$DST/",
        )
        .datapump(("off", "crc64", "off")),
        row("datapump, default options, tree", "dp -r $SRC/small far:$DST/")
            .datapump(("TLS 1.3", "blake3", "file")),
    ]
}

/// Each congestion control that a tool and datapump can both be set to.
fn wire(sizes: Sizes, congestions: &[String]) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in congestions {
        let row = |tool: &str, script: String, clock: Clock| {
            let name = format!("{tool} {name}");
            let mut row = Row::new(Scenario::Wire, &name, &script, sizes.wire);
            row.clock = clock;
            row.terms(("none", "none", "no file"))
        };
        let iperf = "iperf3 -c 127.0.0.1 -p $P -i 0 -J -n $WIRE_BYTES -P1";
        let dp = "steady --seal off --digest none null:$WIRE_BYTES far:null:";
        rows.push(
            row("iperf3 -P1", format!("{iperf} -C {name} > $LOG/iperf.json"), Clock::Iperf)
                .served("iperf3 -s -1 -p $P")
                .needs("iperf3"),
        );
        for streams in [1, 4] {
            let script = format!("{dp} --streams {streams} --congestion {name}");
            let null = row(&format!("datapump null, {streams} streams"), script, Clock::Steady);
            rows.push(Row { login: Login::Subtracted, ..null });
        }
        rows.iter_mut().rev().take(3).for_each(|row| row.terms.congestion.clone_from(name));
    }
    rows
}

fn start_up() -> Vec<Row> {
    let row = |name: &str, script: &str| {
        Row::new(Scenario::StartUp, name, script, 2).arrives(Arrives::Same("two"))
    };
    let ssh = ("ssh default", "none", "none");
    vec![
        row("scp, 2 bytes", "scp -F $CFG -q $SRC/two far:$DST/").terms(ssh).needs("scp"),
        row("rsync over ssh, 2 bytes", "rsync -e \"$SSH\" $SRC/two far:$DST/")
            .terms(ssh)
            .needs("rsync"),
        row("rclone over sftp, 2 bytes", &rclone("$SRC/two :sftp:$DST/"))
            .terms(RCLONE)
            .needs("rclone"),
        row("datapump, 2 bytes", "dp $SRC/two far:$DST/").datapump(("TLS 1.3", "blake3", "file")),
    ]
}

fn disk(sizes: Sizes) -> Vec<Row> {
    let row = |name: &str, script: &str, clock: Clock| {
        let mut row = Row::new(Scenario::Disk, name, script, sizes.big).arrives(Arrives::Disk);
        row.clock = clock;
        row
    };
    let copy = |digest: &str| {
        format!(
            "dp --engine uring --direct on --streams 1 --request-size 1M --depth-source 8 \
             --depth-sink 8 --preallocate on --digest {digest} $DISK/src $DISK/dst/f"
        )
    };
    let local = |digest: &'static str| ("one process", digest, "file");
    vec![
        row("fio reading and writing", FIO, Clock::Fio)
            .arrives(Arrives::Nothing)
            .terms(("one host", "none", "file (end_fsync)"))
            .needs("fio"),
        row("datapump disk crc64", &copy("crc64"), Clock::Datapump).terms(local("crc64")),
        row("datapump disk blake3", &copy("blake3"), Clock::Datapump).terms(local("blake3")),
        row("datapump disk, default options", "dp $DISK/src $DISK/dst/f", Clock::Datapump)
            .terms(local("blake3")),
    ]
}

fn memory(sizes: Sizes) -> Vec<Row> {
    let tls = ("TLS 1.3", "blake3", "file");
    let row = |name: &str, script: &str, bytes: u64, what: &'static str| {
        Row::new(Scenario::Memory, name, script, bytes).arrives(Arrives::Same(what)).datapump(tls)
    };
    vec![
        row("datapump empty files", "dp -r $SRC/empty far:$DST/", 1, "empty"),
        row("datapump one large file", "dp $SRC/big far:$DST/", sizes.big, "big"),
        row(
            "datapump large requests",
            "dp --streams 8 --request-size 4M --memory 512M $SRC/big far:$DST/",
            sizes.big,
            "big",
        ),
    ]
}

/// Streams, request sizes and engines, beside no option at all.
fn grid(of: Grid, sizes: Sizes) -> Vec<Row> {
    let default = of.default_row();
    let moved = default.strip_prefix("no option, ").unwrap_or(default);
    let mut rows = vec![of.row(default, "", sizes)];
    for engine in of.engines() {
        for streams in [1, 2, 4, 8] {
            for request in ["256K", "1M", "4M"] {
                rows.push(of.row(
                    &format!("{streams} × {request}, {engine}, {moved}"),
                    &format!("--streams {streams} --request-size {request} --engine {engine} "),
                    sizes,
                ));
            }
        }
    }
    rows
}

/// What the rows of ours in this scenario are judged without.
fn login(scenario: Scenario) -> Row {
    let row = Row::new(scenario, "ssh alone", "$SSH far true", 1);
    let row = row.terms(("ssh default", "none", "no file")).needs("ssh");
    Row { login: Login::Alone, ..row }
}

impl Row {
    /// With fewer bytes, figures per byte say nothing.
    pub(super) fn is_large(&self) -> bool {
        self.bytes >= LARGE_BYTES_MIN
    }

    /// datapump's rows about memory; the login beside them has no report.
    pub(super) fn reports_memory(&self) -> bool {
        self.scenario == Scenario::Memory && self.login != Login::Alone
    }

    fn new(scenario: Scenario, name: &str, script: &str, bytes: u64) -> Row {
        Row {
            scenario,
            name: name.to_string(),
            needs: Vec::new(),
            serve: None,
            script: script.to_string(),
            bytes,
            arrives: Arrives::Nothing,
            clock: Clock::EndToEnd,
            login: Login::Counted,
            terms: Terms { congestion: machine::congestion(), ..Terms::default() },
        }
    }

    fn arrives(self, arrives: Arrives) -> Row {
        Row { arrives, ..self }
    }

    /// TLS, digest and fsync mode.
    fn terms(
        mut self,
        (sealing, digest, fsync): (&'static str, &'static str, &'static str),
    ) -> Row {
        self.terms = Terms { sealing, digest, fsync, ..self.terms };
        self
    }

    /// datapump to `far:`, with its own clock and a login.
    fn datapump(self, terms: (&'static str, &'static str, &'static str)) -> Row {
        Row { clock: Clock::Datapump, login: Login::Subtracted, ..self.terms(terms) }
    }

    fn needs(mut self, program: &'static str) -> Row {
        self.needs.push(program);
        self
    }

    fn served(self, script: &str) -> Row {
        self.serve_as(script, Ready::Port, ServeEnd::Waited)
    }

    fn served_until_stopped(self, script: &str) -> Row {
        self.serve_as(script, Ready::Port, ServeEnd::Stopped)
    }

    /// wdt as it is without options, but for its syncs: nobody syncs here.
    fn served_by_wdt(self, folder: &str, encryption: &str) -> Row {
        let script = format!(
            "exec wdt -directory {folder} -num_ports 8 -ipv4 -encryption_type {encryption} \
             -fsync=false -disk_sync_interval_mb=-1 > $LOG/wdt.url"
        );
        self.serve_as(&script, Ready::Url, ServeEnd::Waited).needs("wdt")
    }

    fn serve_as(self, script: &str, ready: Ready, end: ServeEnd) -> Row {
        Row { serve: Some(Serve { script: script.to_string(), ready, end }), ..self }
    }
}

/// rclone has an ssh of its own, which reads no configuration: it is told what ssh knows.
fn rclone(ends: &str) -> String {
    format!(
        "export $($SSH -G far | sed -n 's/^hostname /RCLONE_SFTP_HOST=/p; \
         s/^port /RCLONE_SFTP_PORT=/p; s/^user /RCLONE_SFTP_USER=/p; \
         s/^identityfile /RCLONE_SFTP_KEY_FILE=/p'); rclone --config '' copy {ends}"
    )
}

const SOCAT_TO_FILE: &str =
    "exec socat -b 1048576 -u TCP-LISTEN:$P,bind=127.0.0.1,reuseaddr OPEN:$DST/f,creat,trunc";
const SOCAT_TO_TAR: &str =
    "socat -b 1048576 -u TCP-LISTEN:$P,bind=127.0.0.1,reuseaddr - | tar -C $DST -xf -";
const RSYNC_DAEMON: &str = "exec rsync --daemon --no-detach --address=127.0.0.1 --port=$P \
                            --config=$LOG/rsyncd.conf";
/// Its anonymous account is the account that runs the bench, which may be root.
const GRIDFTP: &str = "exec globus-gridftp-server -aa -anonymous-user $(id -un) \
                       -anonymous-group $(id -gn) -allow-root -control-interface 127.0.0.1 \
                       -data-interface 127.0.0.1 -p $P -no-detach";
const WDT_BIG: &str = "wdt -directory $SRC -manifest $LOG/wdt-one - < $LOG/wdt.url";
const WDT_TREE: &str = "mkdir $DST/small; wdt -directory $SRC/small - < $LOG/wdt.url";
/// `here` runs the far side on this host, without a login.
const BBCP: &str = "bbcp -4 -s 2 -w 4M -f -V -T \"sh $LOG/here %U %H bbcp\" $SRC/big \
                    127.0.0.1:$DST/f";
const MSCP: &str = "mscp -q -F $CFG -n 2 -c aes128-gcm@openssh.com $SRC/big far:$DST/";
const RCLONE_TREE: &str = "--transfers 16 --ignore-checksum $SRC/small :sftp:$DST/small";
/// The digest is that of md5sum on the far host, started for each file that has arrived.
const RCLONE: (&str, &str, &str) = ("rclone's own ssh", "md5", "none");
const TAR_SSH_BIG: &str =
    "tar -C $SRC -cf - big | $SSH -c aes128-gcm@openssh.com far \"tar -C $DST -xf -\"";
const TAR_SSH_SMALL: &str =
    "tar -C $SRC -cf - small | $SSH -c aes128-gcm@openssh.com far \"tar -C $DST -xf -\"";
const FIO: &str = "fio --ioengine=io_uring --direct=1 --bs=1M --iodepth=8 --size=$BYTES \
                   --end_fsync=1 \
                   --output=$LOG/fio.json --output-format=json \
                   --name=read --rw=read --filename=$DISK/src \
                   --name=write --rw=write --fallocate=native --filename=$DISK/dst/f";

/// `--only` with this word runs all grids.
pub(super) const GRIDS: &str = "grid";
const LARGE_BYTES_MIN: u64 = 1 << 20;
