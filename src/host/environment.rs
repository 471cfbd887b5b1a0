//! The environment of a run: kernel, processors, clock, network and memory settings, file systems.
//! Pure functions parse the texts of files in `/proc` and `/sys`. No other program is started,
//! since every copy reads the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use analysis::record::sample::Environment;
use base::units::parse_size;

/// The texts that facts are parsed from, by path.
pub(crate) type Texts = BTreeMap<String, String>;

/// The environment of this host.
pub fn here() -> Environment {
    of(&texts())
}

/// Parses the facts. Values that change within minutes are left out: runs share environments.
pub fn of(texts: &Texts) -> Environment {
    let one = |path: &str| texts.get(path).map(|text| text.trim().to_string());
    let mut facts = BTreeMap::new();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_string(), value);
        }
    };
    for (name, path) in ONE_TO_ONE {
        fact(name, one(path));
    }
    fact("datapump", Some(env!("CARGO_PKG_VERSION").to_string()));
    fact("architecture", Some(std::env::consts::ARCH.to_string()));
    let cpuinfo = texts.get(CPUINFO).map_or("", String::as_str);
    fact("cpu_model", field(cpuinfo, "model name").map(String::from));
    let cpus = cpuinfo.lines().filter(|line| name_of(line) == "processor").count();
    fact("cpus", (cpus > 0).then(|| cpus.to_string()));
    fact("mhz", mhz(texts));
    fact("virtualization", Some(virtualization(texts)));
    fact("cpu_quota", cpu_quota(texts));
    fact("memory_total_bytes", texts.get(MEMINFO).and_then(|text| memory_total(text)));
    for (path, text) in texts.iter().filter(|(path, _)| path.starts_with("/boot/config-")) {
        for (name, option) in KERNEL_OPTIONS {
            fact(name, kernel_option(text, option));
        }
        fact("kernel_config", Some(path.clone()));
    }
    for (name, value) in caches(texts) {
        fact(&name, Some(value));
    }
    for (path, text) in texts {
        if let Some(name) = path.strip_prefix("/proc/sys/").filter(|name| is_setting(name)) {
            let words: Vec<&str> = text.split_whitespace().collect();
            fact(&format!("sysctl {}", name.replace('/', ".")), Some(words.join(" ")));
        }
    }
    let interface = texts.get(ROUTES).and_then(|routes| default_interface(routes));
    if let Some(interface) = interface {
        fact("interface", Some(interface.to_string()));
        fact("mtu_bytes", one(&format!("/sys/class/net/{interface}/mtu")));
    }
    Environment { host: one(HOSTNAME).unwrap_or_default(), facts }
}

/// The file system that a path is on, or will be on: `ext4 rw,relatime,errors=remount-ro`.
pub(crate) fn file_system(path: &Path) -> Option<String> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let absolute = std::path::absolute(path).ok()?;
    // Of a path that does not exist, the nearest folder above it.
    let there = absolute.ancestors().find_map(|path| fs::canonicalize(path).ok())?;
    file_system_in(&mounts, &there)
}

/// The mount of a path without links, from a list of mounts in the kernel's form:
///
/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
pub(crate) fn file_system_in(mounts: &[u8], path: &Path) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    for line in mounts.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(dash) = fields.iter().position(|field| *field == b"-") else { continue };
        let (Some(point), Some(options)) = (fields.get(4), fields.get(5)) else { continue };
        let point = unescaped(point);
        // Of two mounts at one point the later hides the earlier.
        let depth = point.components().count();
        let covers = best.as_ref().is_none_or(|(deepest, _)| depth >= *deepest);
        if path.starts_with(&point) && covers {
            let text = |at: usize| {
                fields.get(at).map_or_else(String::new, |f| String::from_utf8_lossy(f).into_owned())
            };
            let own = String::from_utf8_lossy(options);
            let mut all: Vec<&str> = own.split(',').collect();
            let shared = text(dash + 3);
            for option in shared.split(',') {
                if !option.is_empty() && !all.contains(&option) {
                    all.push(option);
                }
            }
            best = Some((depth, format!("{} {}", text(dash + 1), all.join(","))));
        }
    }
    best.map(|(_, text)| text)
}

/// Reads all files that facts are parsed from.
fn texts() -> Texts {
    let mut texts = Texts::new();
    let mut take = |path: &str| {
        if let Ok(bytes) = fs::read(path) {
            texts.insert(path.to_string(), String::from_utf8_lossy(&bytes).into_owned());
        }
    };
    ONE_TO_ONE.iter().for_each(|(_, path)| take(path));
    for path in [HOSTNAME, CPUINFO, MEMINFO, ROUTES, MHZ_BASE, MHZ_MAX, VENDOR, HYPERVISOR] {
        take(path);
    }
    for index in 0..CACHES_MAX {
        ["level", "type", "size"].iter().for_each(|name| take(&cache_path(index, name)));
    }
    for folder in SETTINGS {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
            let path = format!("{folder}/{name}");
            if path.strip_prefix("/proc/sys/").is_some_and(is_setting) {
                take(&path);
            }
        }
    }
    for file in fs::read_to_string(OWN_GROUP).iter().flat_map(|text| quota_files(text)) {
        take(&file);
    }
    if let Ok(release) = fs::read_to_string(RELEASE) {
        take(&format!("/boot/config-{}", release.trim()));
    }
    let routes = fs::read_to_string(ROUTES).unwrap_or_default();
    if let Some(interface) = default_interface(&routes) {
        take(&format!("/sys/class/net/{interface}/mtu"));
    }
    texts
}

/// The quota files of a process's control group and of the groups above it: in the single tree of
/// version 2, `0::/jobs`, or in the CPU tree of version 1, `4:cpu,cpuacct:/jobs`.
fn quota_files(own_group: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in own_group.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (tree, names): (_, &[&str]) = match controllers {
            "" => ("", &[QUOTA]),
            names if names.split(',').any(|name| name == "cpu") => {
                ("/cpu", &[FIRST_QUOTA, FIRST_PERIOD])
            }
            _ => continue,
        };
        for around in Path::new(group).ancestors() {
            let around = around.display().to_string();
            let around = around.trim_end_matches('/');
            files.extend(names.iter().map(|name| format!("{GROUPS}{tree}{around}/{name}")));
        }
    }
    files
}

/// The lowest of those quotas, as the kernel writes it: `50000 100000` is half a CPU.
fn cpu_quota(texts: &Texts) -> Option<String> {
    let share = |text: &str| -> f64 {
        let (share, period) = text.split_once(' ').unwrap_or((text, "1"));
        match (share.parse::<f64>(), period.parse::<f64>()) {
            (Ok(share), Ok(period)) if period > 0.0 => share / period,
            _ => f64::INFINITY,
        }
    };
    let quota = |(path, text): (&String, &String)| -> Option<String> {
        let text = text.trim();
        if path.ends_with(QUOTA) {
            return Some(text.to_string());
        }
        // In version 1 the two numbers have a file each, and -1 means no quota.
        let folder = path.strip_suffix(FIRST_QUOTA).filter(|_| !text.starts_with('-'))?;
        let period = texts.get(&format!("{folder}{FIRST_PERIOD}"))?;
        Some(format!("{text} {}", period.trim()))
    };
    let quotas = texts.iter().filter(|(path, _)| path.starts_with(GROUPS)).filter_map(quota);
    quotas.min_by(|a, b| share(a).total_cmp(&share(b)))
}

/// Settings that affect transfers. Keys are left out: they are secret.
fn is_setting(name: &str) -> bool {
    let Some((folder, name)) = name.rsplit_once('/') else {
        return false;
    };
    match folder {
        "net/ipv4" => name.starts_with("tcp_") && !name.contains("key"),
        "net/core" => {
            name.starts_with("rmem")
                || name.starts_with("wmem")
                || matches!(name, "default_qdisc" | "netdev_max_backlog" | "optmem_max")
        }
        "vm" => name.starts_with("dirty_") || name == "swappiness",
        _ => false,
    }
}

/// The nominal clock of the processor, where it is known. The current clock changes all the time:
/// it is used, in full hundreds, only where nothing else is known.
fn mhz(texts: &Texts) -> Option<String> {
    let khz = |path| texts.get(path)?.trim().parse::<u64>().ok();
    let steady = khz(MHZ_BASE).or_else(|| khz(MHZ_MAX)).map(|khz| khz as f64 / 1000.0);
    let now = || {
        let now: f64 = field(texts.get(CPUINFO)?, "cpu MHz")?.parse().ok()?;
        Some((now / 100.0).round() * 100.0)
    };
    steady.or_else(now).map(|mhz| format!("{mhz:.0}"))
}

fn virtualization(texts: &Texts) -> String {
    let flags = texts.get(CPUINFO).and_then(|text| field(text, "flags")).unwrap_or_default();
    let guest = flags.split(' ').any(|flag| flag == "hypervisor");
    let named = [HYPERVISOR, VENDOR].iter().find_map(|path| texts.get(*path));
    match (guest, named.map(|name| name.trim()).filter(|name| !name.is_empty())) {
        (true, Some(name)) => name.to_string(),
        (true, None) => "some".to_string(),
        (false, _) => "none seen".to_string(),
    }
}

fn memory_total(meminfo: &str) -> Option<String> {
    let kib: u64 = field(meminfo, "MemTotal")?.split(' ').next()?.parse().ok()?;
    Some(kib.saturating_mul(1024).to_string())
}

/// The size of a core's own cache, the second-level one.
pub(crate) fn core_cache_bytes(environment: &Environment) -> Option<u64> {
    let (_, size) = environment.facts.iter().find(|(name, _)| name.starts_with("cache L2"))?;
    parse_size(size).ok()
}

/// `cache L1 Data` → `32K`.
fn caches(texts: &Texts) -> Vec<(String, String)> {
    let cache = |index| {
        let one = |name| texts.get(&cache_path(index, name)).map(|text| text.trim());
        Some((format!("cache L{} {}", one("level")?, one("type")?), one("size")?.to_string()))
    };
    (0..CACHES_MAX).filter_map(cache).collect()
}

fn cache_path(index: u32, name: &str) -> String {
    format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")
}

/// `CONFIG_HZ=250` → `250`; `# CONFIG_X is not set` → `n`.
fn kernel_option(config: &str, option: &str) -> Option<String> {
    config.lines().find_map(|line| match line.strip_prefix(option) {
        Some(rest) => rest.strip_prefix('=').map(String::from),
        None => {
            let unset = line.strip_prefix("# ")?.strip_suffix(" is not set")?;
            (unset == option).then(|| "n".to_string())
        }
    })
}

/// The interface of the default route.
fn default_interface(routes: &str) -> Option<&str> {
    routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let interface = fields.next()?;
        (fields.next()? == "00000000").then_some(interface)
    })
}

/// The first value of a name in lines like `model name : Xeon`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| name_of(line) == name)?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn name_of(line: &str) -> &str {
    line.split(':').next().unwrap_or_default().trim()
}

/// The kernel writes spaces and other special characters in names as `\040`.
fn unescaped(name: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < name.len() {
        let digits = name.get(at + 1..at + 4).filter(|_| name[at] == b'\\');
        let octal =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(name[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

const HOSTNAME: &str = "/proc/sys/kernel/hostname";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
const CPUINFO: &str = "/proc/cpuinfo";
const OWN_GROUP: &str = "/proc/self/cgroup";
const GROUPS: &str = "/sys/fs/cgroup";
const QUOTA: &str = "cpu.max";
const FIRST_QUOTA: &str = "cpu.cfs_quota_us";
const FIRST_PERIOD: &str = "cpu.cfs_period_us";
const MEMINFO: &str = "/proc/meminfo";
const ROUTES: &str = "/proc/net/route";
const MHZ_BASE: &str = "/sys/devices/system/cpu/cpu0/cpufreq/base_frequency";
const MHZ_MAX: &str = "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq";
const VENDOR: &str = "/sys/class/dmi/id/sys_vendor";
const HYPERVISOR: &str = "/sys/hypervisor/type";
/// Whether the scheduler groups threads by session: `1` or `0`.
pub(crate) const AUTOGROUP: &str = "sched_autogroup";
/// Folders with settings.
const SETTINGS: &[&str] = &["/proc/sys/net/ipv4", "/proc/sys/net/core", "/proc/sys/vm"];
/// Facts that are the text of one file.
const ONE_TO_ONE: &[(&str, &str)] = &[
    ("kernel", RELEASE),
    ("kernel_build", "/proc/sys/kernel/version"),
    (AUTOGROUP, "/proc/sys/kernel/sched_autogroup_enabled"),
    ("cpus_online", "/sys/devices/system/cpu/online"),
    ("cpus_isolated", "/sys/devices/system/cpu/isolated"),
    ("threads_per_core", "/sys/devices/system/cpu/smt/active"),
    ("numa_nodes", "/sys/devices/system/node/online"),
    ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("frequency_governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("huge_pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ("machine", "/sys/class/dmi/id/product_name"),
];
/// Facts that only the kernel's build configuration has.
const KERNEL_OPTIONS: &[(&str, &str)] = &[
    ("hz", "CONFIG_HZ"),
    ("irq_time_accounting", "CONFIG_IRQ_TIME_ACCOUNTING"),
    ("full_time_accounting", "CONFIG_VIRT_CPU_ACCOUNTING_GEN"),
    ("preempt", "CONFIG_PREEMPT"),
];
/// More caches than any processor has.
const CACHES_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn texts_of(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect()
    }

    #[test]
    fn facts_of_texts() {
        let environment = of(&texts_of(&[
            (HOSTNAME, "ada\n"),
            (RELEASE, "6.1.0\n"),
            (
                CPUINFO,
                "processor\t: 0\nmodel name\t: Xeon: fast\ncpu MHz\t\t: 2249.998\n\
                 flags\t\t: fpu hypervisor\n\nprocessor\t: 1\nmodel name\t: Xeon\n",
            ),
            (MEMINFO, "MemTotal:        1024 kB\nMemFree: 3 kB\n"),
            (VENDOR, "QEMU\n"),
            (ROUTES, "Iface Destination\neth1\t0000A8C0\neth0\t00000000\t0100\n"),
            ("/sys/class/net/eth0/mtu", "1500\n"),
            ("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("/proc/sys/net/ipv4/tcp_fastopen_key", "0123-4567"),
            ("/proc/sys/net/ipv4/ip_forward", "0"),
            ("/boot/config-6.1.0", "CONFIG_HZ_250=y\nCONFIG_HZ=250\n# CONFIG_PREEMPT is not set\n"),
            ("/sys/fs/cgroup/jobs/cpu.max", "50000 100000\n"),
            ("/sys/fs/cgroup/jobs/mine/cpu.max", "max 100000\n"),
            (&cache_path(0, "level"), "1\n"),
            (&cache_path(0, "type"), "Data\n"),
            (&cache_path(0, "size"), "32K\n"),
        ]));
        assert_eq!(environment.host, "ada");
        let expect = [
            ("kernel", Some("6.1.0")),
            ("cpu_model", Some("Xeon: fast")),
            ("cpus", Some("2")),
            ("mhz", Some("2200")),
            ("virtualization", Some("QEMU")),
            ("memory_total_bytes", Some("1048576")),
            ("interface", Some("eth0")),
            ("mtu_bytes", Some("1500")),
            ("sysctl net.ipv4.tcp_rmem", Some("4096 131072 6291456")),
            ("sysctl net.ipv4.tcp_fastopen_key", None),
            ("sysctl net.ipv4.ip_forward", None),
            ("cpu_quota", Some("50000 100000")),
            ("hz", Some("250")),
            ("preempt", Some("n")),
            ("cache L1 Data", Some("32K")),
            ("clocksource", None),
        ];
        for (name, value) in expect {
            assert_eq!(environment.facts.get(name).map(String::as_str), value, "{name}");
        }
    }

    #[test]
    fn quotas_of_all_groups_count() {
        let cases: [(&str, &[&str]); 4] = [
            (
                "0::/jobs/mine\n",
                &[
                    "/sys/fs/cgroup/jobs/mine/cpu.max",
                    "/sys/fs/cgroup/jobs/cpu.max",
                    "/sys/fs/cgroup/cpu.max",
                ],
            ),
            ("0::/\n", &["/sys/fs/cgroup/cpu.max"]),
            ("1:cpuset:/old\n", &[]),
            (
                "4:cpu,cpuacct:/jobs\n2:cpuset:/\n",
                &[
                    "/sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us",
                    "/sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us",
                    "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
                    "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
                ],
            ),
        ];
        for (text, expect) in cases {
            assert_eq!(quota_files(text), expect, "{text}");
        }
        let first = |jobs: &str| {
            let texts = texts_of(&[
                ("/sys/fs/cgroup/cpu/jobs/cpu.cfs_quota_us", jobs),
                ("/sys/fs/cgroup/cpu/jobs/cpu.cfs_period_us", "100000\n"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                ("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ]);
            of(&texts).facts.get("cpu_quota").cloned()
        };
        assert_eq!(first("20000\n").as_deref(), Some("20000 100000"));
        assert_eq!(first("-1\n"), None);
    }

    #[test]
    fn odd_texts_are_no_facts() {
        let odd = [CPUINFO, MEMINFO, ROUTES, MHZ_BASE, MHZ_MAX, "/boot/config-"];
        for text in ["", "\n\n", ":", "cpu MHz: NaN\nMemTotal: many", "\u{0}\u{fffd}", "a\nb"] {
            let pairs: Vec<(&str, &str)> = odd.iter().map(|path| (*path, text)).collect();
            let facts = of(&texts_of(&pairs)).facts;
            assert!(
                !facts.contains_key("cpus") && !facts.contains_key("hz"),
                "{text:?}: {facts:?}"
            );
        }
        assert_eq!(of(&Texts::new()).host, "");
    }

    #[test]
    fn file_systems_of_mounts() {
        let mounts = b"1 0 8:1 / / rw,relatime - ext4 /dev/vda rw,errors=remount-ro\n\
            2 1 0:5 / /tmp rw,nosuid shared:7 - tmpfs tmpfs rw,size=1g\n\
            3 1 0:6 / /with\\040blank ro - xfs /dev/x ro\n\
            4 1 0:7 / /over rw - ext4 /dev/y rw\n\
            5 4 0:8 / /over rw - btrfs /dev/z rw\n\
            nonsense - \n6 1 - - -\n";
        let cases = [
            ("/a", Some("ext4 rw,relatime,errors=remount-ro")),
            ("/tmp/x/y", Some("tmpfs rw,nosuid,size=1g")),
            ("/tmpx", Some("ext4 rw,relatime,errors=remount-ro")),
            ("/with blank/z", Some("xfs ro")),
            ("/over", Some("btrfs rw")),
            ("relative", None),
        ];
        for (path, expect) in cases {
            let found = file_system_in(mounts, Path::new(path));
            assert_eq!(found.as_deref(), expect, "{path}");
        }
        assert_eq!(file_system_in(b"\xff", Path::new("/")), None);
    }

    #[test]
    fn this_host_has_an_environment_that_stays() {
        let environment = here();
        for name in ["kernel", "cpus", "memory_total_bytes", "datapump"] {
            assert!(environment.facts.contains_key(name), "{name}: {environment:?}");
        }
        assert_eq!(here(), environment, "runs share it");
        assert!(file_system(Path::new("not/there/yet")).is_some());
    }
}
