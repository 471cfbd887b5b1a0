//! What is not run as it is typed, and what ends with another exit code than 0. A row that is of no
//! line any more fails a test.

/// A line that is only parsed, by a test of `src/cli/help.rs`.
#[derive(Debug)]
pub(super) struct Parsed {
    pub page: &'static str,
    pub line: &'static str,
    pub because: &'static str,
}

/// A whole line, or a part of lines, that is run with less data or for a shorter time: of one page,
/// or of all.
#[derive(Debug)]
pub(super) struct Shorter {
    pub page: Option<&'static str>,
    pub typed: &'static str,
    pub run: &'static str,
}

/// A line with other exit codes, and the words of its page that say so.
#[derive(Debug)]
pub(super) struct Otherwise {
    pub page: &'static str,
    pub line: &'static str,
    pub codes: &'static [i32],
    pub words: &'static str,
}

/// What has happened before a line, as shell.
#[derive(Debug)]
pub(super) struct Before {
    pub page: &'static str,
    pub line: &'static str,
    pub shell: &'static str,
}

pub(super) const PARSED: &[Parsed] = &[
    Parsed {
        page: "README.md",
        line: "cargo run --release -- demo",
        because: "it builds this repository; `doors.rs` runs the demo",
    },
    Parsed {
        page: "README.md",
        line: "cargo install --locked --profile dist --path .",
        because: "it builds this repository for a quarter of an hour",
    },
    Parsed { page: "README.md", line: "cargo xtask test", because: "it runs these tests" },
    Parsed {
        page: "compression.md",
        line: "datapump measure codec --thorough big.tar",
        because: "a minute, however little the data; the lines above it run",
    },
    Parsed {
        page: "cost-model.md",
        line: "datapump measure all",
        because: "twenty minutes; `measure.rs` measures each part with little data",
    },
    Parsed {
        page: "cost-model.md",
        line: "datapump measure cpu disk-source disk-sink",
        because: "minutes of load, and most runs are void beside other tests; see `measure.rs`",
    },
    Parsed {
        page: "cost-model.md",
        line: "datapump measure net --on dtn2 --receive any",
        because: "the same",
    },
    Parsed {
        page: "cost-model.md",
        line: "datapump measure disk-sink --cache warm --depths 1..4 --request-sizes 64K,1M",
        because: "the same",
    },
    Parsed {
        page: "cost-model.md",
        line: "datapump measure whole --file /store",
        because: "the same",
    },
    Parsed {
        page: "json-and-results.md",
        line: "duckdb -c \"SELECT id, moved.bytes, moved.elapsed_s FROM read_json('runs.json')\"",
        because: "duckdb is no package of Debian",
    },
    Parsed {
        page: "spread.md",
        line: "datapump spread /project/run9 /archive/ --on slurm:dtn",
        because: "there is no Slurm on this host; `slurm.md` has one, and the same command",
    },
];

pub(super) const SHORTER: &[Shorter] = &[
    Shorter {
        page: Some("spread.md"),
        typed: "datapump spread /project/run7 /archive/ --on local:4",
        run: "datapump spread /project/run7 /archive/ --on local:4 --rate 10kB",
    },
    Shorter {
        page: Some("slurm.md"),
        typed: "datapump spread /scratch/run7 /archive/ --on slurm:dtn",
        run: "datapump spread /scratch/run7 /archive/ --on slurm:dtn --rate 10kB",
    },
    Shorter { page: None, typed: "null:20G", run: "null:20M" },
    Shorter { page: None, typed: "text:2G", run: "text:20M" },
    Shorter {
        page: None,
        typed: "--bytes 1G --request-sizes 16M --depths 4 --repeat 5",
        run: "--bytes 16M --request-sizes 16M --depths 4 --repeat 1",
    },
    Shorter { page: None, typed: "codec big.tar", run: "codec little.tar" },
    Shorter { page: None, typed: "codec records:16M", run: "codec records:64K" },
    Shorter { page: None, typed: "--time 3 --omit 1", run: "--time 0.3 --omit 0.1" },
    Shorter {
        page: None,
        typed: "datapump net-test dtn2",
        run: "datapump net-test --time 0.3 dtn2",
    },
    Shorter { page: None, typed: "--streams 4 --time 30", run: "--streams 4 --time 0.3" },
    Shorter { page: None, typed: "--bidir", run: "--time 0.3 --bidir" },
    Shorter {
        page: None,
        typed: "datapump sweep --hosts hosts.txt",
        run: "datapump sweep --hosts hosts.txt --windows auto --streams 1 --time 0.1 --repeat 1",
    },
    Shorter { page: None, typed: "--time 5 --repeat 5", run: "--time 0.1 --repeat 1" },
    Shorter {
        page: None,
        typed: "datapump sweep s3://archive/tests",
        run: "datapump sweep s3://archive/tests --sizes 8M --request-sizes 8M --depths 2 \
              --repeat 1",
    },
    Shorter {
        page: None,
        typed: "--depths 1,2,4,8 --sizes 1G --repeat 5",
        run: "--depths 1,2 --sizes 8M --repeat 1",
    },
    Shorter {
        page: None,
        typed: "datapump measure s3://archive/tests",
        run: "datapump measure s3://archive/tests --bytes 8M",
    },
];

pub(super) const OTHERWISE: &[Otherwise] = &[
    Otherwise {
        page: "README.md",
        line: "datapump doctor dtn2",
        codes: &[0, 1],
        words: "They examine both hosts and the path (exit code 1 where they find trouble)",
    },
    Otherwise {
        page: "scripting.md",
        line: "datapump doctor dtn2",
        codes: &[0, 1],
        words: "`datapump doctor` ends with 1 when it finds trouble",
    },
    Otherwise {
        page: "why-is-it-slow.md",
        line: "datapump doctor",
        codes: &[0, 1],
        words: "`trouble` costs speed or breaks copies (exit code 1)",
    },
    Otherwise {
        page: "why-is-it-slow.md",
        line: "datapump doctor dtn2",
        codes: &[0, 1],
        words: "`trouble` costs speed or breaks copies (exit code 1)",
    },
    Otherwise {
        page: "why-is-it-slow.md",
        line: "datapump doctor --target 10Gbit dtn2:/store",
        codes: &[0, 1],
        words: "`trouble` costs speed or breaks copies (exit code 1)",
    },
    Otherwise {
        page: "resume.md",
        line: "datapump copy big.tar dtn2:/store/",
        codes: &[130],
        words: "If the first run is interrupted, the second sends only what is missing",
    },
    Otherwise {
        page: "spread.md",
        line: "datapump spread /project/run7 /archive/ --on local:4",
        codes: &[130],
        words: "| 130 | stopped by Ctrl-C",
    },
    Otherwise {
        page: "slurm.md",
        line: "datapump spread /scratch/run7 /archive/ --on slurm:dtn",
        codes: &[130],
        words: "Ctrl-C stops them",
    },
];

/// A copy that runs is stopped, or told another limit, in the middle: so it is slow at first.
pub(super) const BEFORE: &[Before] = &[
    Before {
        page: "copying.md",
        line: "datapump limit",
        shell: "numbered 4711 datapump copy -q --rate 1MB null:4000G dtn2:null:
            until datapump limit | grep 4711; do sleep 0.05; done",
    },
    Before {
        page: "copying.md",
        line: "datapump copy --streams auto big.dat dtn2:/store/",
        shell: "kill -TERM 4711; wait 4711",
    },
    Before {
        page: "copying.md",
        line: "datapump compare project/ dtn2:/store/project",
        shell: "datapump copy -q -r project s3://archive/",
    },
    Before {
        page: "copying.md",
        line: "datapump verify SHA256SUMS received",
        shell: "(cd received && find . -type f -exec sha256sum {} +) > SHA256SUMS",
    },
    Before {
        page: "resume.md",
        line: "datapump copy big.tar dtn2:/store/",
        shell: "export DATAPUMP_RATE=1MB
            (until far 'ls /store/.datapump-*.part'; do sleep 0.05; done
             datapump limit | sed 's/process \\([0-9]*\\):.*/\\1/' | xargs kill -INT
            ) > /out/interrupt 2>&1 &",
    },
    Before {
        page: "spread.md",
        line: "datapump spread /project/run7 /archive/ --on local:4",
        shell: STOP,
    },
    Before { page: "spread.md", line: "datapump spread resume spread-1", shell: FASTER },
    Before {
        page: "slurm.md",
        line: "datapump spread /scratch/run7 /archive/ --on slurm:dtn",
        shell: STOP,
    },
    Before { page: "slurm.md", line: "datapump spread resume spread-1", shell: FASTER },
    Before {
        page: "resume.md",
        line: "datapump copy big.tar dtn2:/store/ (2)",
        shell: "unset DATAPUMP_RATE",
    },
];

/// Ctrl-C for the next spread as soon as a worker has something.
const STOP: &str = "(until ls spread-1/claims/* || [ -e spread-1/receipt ]; do sleep 0.05; done
    [ -e spread-1/receipt ] || pkill -INT -f '^datapump spread /') > out-of-stop 2>&1 &";

/// What is left of it goes as fast as it can.
const FASTER: &str = "jq '.copying.bytes_per_second = null' spread-1/manifest.json > manifest
    cp manifest spread-1/manifest.json";

/// The pages of what has been recorded.
pub(super) const RECORDED: &[&str] =
    &["campaigns.md", "cost-model.md", "json-and-results.md", "reports.md", "why-is-it-slow.md"];

/// Shell that makes what a page names besides the files of all pages.
pub(super) fn prepare(page: &str) -> &'static str {
    match page {
        "README.md" => {
            "mkdir -p datapump-0.2.0-x86_64-linux/bin
             cp /opt/datapump/* datapump-0.2.0-x86_64-linux/bin/
             tar -czf datapump-0.2.0-x86_64-linux.tar.gz datapump-0.2.0-x86_64-linux
             rm -r datapump-0.2.0-x86_64-linux
             PATH=/usr/bin:/bin"
        }
        "bbcp.md" => "mkdir ~/bin; PATH=$PATH:~/bin",
        "campaigns.md" => "echo 'dtn2:/store # another site' > hosts.txt",
        "compression.md" => {
            "head -c 64K project/src/a.rs > little.tar
             seq 100000 > log.tar"
        }
        "cost-model.md" => {
            "head -c 64K project/src/a.rs > little.tar
             printf 'request_size,ns_per_byte\n32K,3.2\n64K,1.9\n256K,0.95\n' > costs.csv"
        }
        "copying.md" => {
            "mkdir data logs tars
             printf 'src/a.rs\nsrc/b.rs\n' > names.txt
             far 'cd /store && mkdir run1 run2 && date > run1/log.1 && date > run2/log.2 &&
                  date > \"*.tar\"'
             numbered() {
               number=$1; shift
               until echo $((number - 1)) > /proc/sys/kernel/ns_last_pid
                     \"$@\" < /dev/null > /out/numbered 2>&1 &
                     test $! = $number; do kill $!; done
             }"
        }
        "monitoring.md" => {
            "mkdir -p /data /var/lib/prometheus/node-exporter
             cp big.tar /data/"
        }
        "reports.md" => {
            "mkdir -p /data
             cp big.tar /data/
             datapump model fit"
        }
        "scripting.md" => {
            "printf '# to dtn2\nstreams 8\nwindow 4M\ncompress off\n' > dtn2.profile
             mkdir -p ~/.config/datapump/profiles
             cp dtn2.profile ~/.config/datapump/profiles/dtn2"
        }
        "security.md" => "datapump copy -q -r project dtn2:/store/",
        "spread.md" => {
            "mkdir /project
             for run in run7 run8 run11; do cp -r project /project/$run; done
             far mkdir /project
             datapump copy -q -r project/ dtn2:/project/run10
             printf 'node1 # on this site\nnode2\n' > nodes.txt"
        }
        "slurm.md" => {
            "mkdir -p /scratch /archive
             for run in run7 run8 run9; do
               mkdir /scratch/$run
               for name in a b c; do head -c 30000 /dev/urandom > /scratch/$run/$name; done
             done"
        }
        "stores.md" => {
            "mkdir results data
             seq 1000 | tee results/1 > data/1"
        }
        _ => "",
    }
}
