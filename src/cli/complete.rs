//! Completions: what may follow on a command line. The script of a shell asks the program, so
//! hosts, files, recorded runs and profiles are offered as they are at that moment.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ValueHint};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};

use super::command_id::CommandId;
use super::limit;
use super::options::AnyOption;
use super::options::moving::PROFILE;
use super::parser;
use super::profile;
use super::record;
use super::sweep;
use crate::results::{Filter, Store};
use analysis::record::sample::Scenario;
use analysis::report::results;

/// A word of a command with what is offered for it.
pub(super) fn word(command: CommandId, word: Arg) -> Arg {
    match command {
        CommandId::Copy | CommandId::ModelPredict | CommandId::Compare | CommandId::Ls => {
            word.add(ArgValueCompleter::new(ends))
        }
        CommandId::Verify
        | CommandId::Clean
        | CommandId::MeasureCodec
        | CommandId::SubmittedCopy => word.value_hint(ValueHint::AnyPath),
        CommandId::Limit if word.get_id() == "PROCESS" => {
            word.add(ArgValueCandidates::new(limit::candidates))
        }
        CommandId::Measure => word.add(ArgValueCandidates::new(|| {
            Scenario::NAMES.iter().chain(&["whole", "all"]).map(CompletionCandidate::new).collect()
        })),
        CommandId::NetTest | CommandId::Doctor | CommandId::ConfigShow => {
            word.add(ArgValueCandidates::new(|| {
                hosts().into_iter().map(CompletionCandidate::new).collect()
            }))
        }
        CommandId::ResultsList
        | CommandId::ResultsShow
        | CommandId::ResultsExport
        | CommandId::Explain => word.add(ArgValueCandidates::new(runs)),
        CommandId::Report => {
            word.add(ArgValueCandidates::new(|| runs().into_iter().chain(campaigns()).collect()))
        }
        CommandId::Sweep
        | CommandId::SweepShow
        | CommandId::SweepProfile
        | CommandId::SweepCompare => word.add(ArgValueCandidates::new(campaigns)),
        CommandId::Man => word.add(ArgValueCandidates::new(|| {
            let shown = CommandId::all().filter(|command| !command.is_hidden());
            let words: BTreeSet<&str> = shown.map(CommandId::first_word).collect();
            words.into_iter().map(CompletionCandidate::new).collect()
        })),
        _ => word,
    }
}

/// An option with what is offered for its value.
pub(super) fn value(option: &'static dyn AnyOption, arg: Arg) -> Arg {
    let description = option.description();
    match description.value {
        "FILE" | "PATH" => arg.value_hint(ValueHint::AnyPath),
        _ if description.name == PROFILE.name => arg.add(ArgValueCandidates::new(profiles)),
        _ => arg,
    }
}

/// Hosts and paths of this host. What is on another host is not asked for.
fn ends(typed: &OsStr) -> Vec<CompletionCandidate> {
    let text = typed.to_string_lossy();
    let start = text.rsplit_once('@').map_or("", |(user, _)| &text[..=user.len()]);
    let hosts = hosts().into_iter().map(|host| format!("{start}{host}:"));
    let hosts = hosts.filter(|host| host.starts_with(text.as_ref()) && *host != text);
    let hosts = hosts.map(CompletionCandidate::new);
    match text.contains(':') {
        true => hosts.collect(),
        false => hosts.chain(PathCompleter::any().complete(typed)).collect(),
    }
}

/// The hosts that ssh knows by name.
pub(super) fn hosts() -> BTreeSet<String> {
    let read = |name: &str| {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        home.and_then(|home| fs::read_to_string(home.join(".ssh").join(name)).ok())
            .unwrap_or_default()
    };
    let mut hosts = of_config(&read("config"));
    hosts.extend(of_known_hosts(&read("known_hosts")));
    hosts
}

fn of_config(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| {
        let (key, rest) = line.trim().split_once(|c: char| c.is_whitespace() || c == '=')?;
        key.eq_ignore_ascii_case("host").then_some(rest)
    });
    let names = lines.flat_map(|names| names.split_whitespace());
    names.filter(|name| !name.contains(['*', '?', '!', '"'])).map(String::from).collect()
}

/// Hashed names and those with a port of their own cannot be typed.
fn of_known_hosts(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with(['#', '@']));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    let names = names.flat_map(|names| names.split(','));
    names.filter(|name| !name.contains(['|', '[', '*', '?', '!', ':'])).map(String::from).collect()
}

/// The newest runs, each with a line about it.
fn runs() -> Vec<CompletionCandidate> {
    let filter = Filter { newest: Some(RUNS_MAX), ..Filter::default() };
    let found = store().and_then(|store| store.records(&filter).ok()).unwrap_or_default();
    let found = found.iter().rev();
    found
        .map(|run| {
            CompletionCandidate::new(run.id.to_string()).help(Some(results::headline(run).into()))
        })
        .collect()
}

fn campaigns() -> Vec<CompletionCandidate> {
    let found = store().and_then(|store| sweep::recorded(&store).ok()).unwrap_or_default();
    found.into_iter().map(|campaign| CompletionCandidate::new(campaign.name)).collect()
}

fn store() -> Option<Store> {
    let path = record::store_path(None).ok()?;
    Store::open_existing(&path).ok()
}

fn profiles() -> Vec<CompletionCandidate> {
    let folder = profile::path_of("x").ok();
    let folder = folder.as_deref().and_then(Path::parent);
    let entries = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
    entries.flatten().map(|entry| CompletionCandidate::new(entry.file_name())).collect()
}

/// Prints what may stand in the place of the last word, one a line with its explanation.
pub(super) fn print(words: &[OsString], out: &mut dyn Write) -> io::Result<()> {
    let line: Vec<OsString> =
        std::iter::once(OsString::from("datapump")).chain(words.iter().cloned()).collect();
    for candidate in candidates(line)? {
        let help = candidate.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.lines().next().unwrap_or_default();
        writeln!(out, "{}\t{help}", candidate.get_value().to_string_lossy())?;
    }
    Ok(())
}

fn candidates(line: Vec<OsString>) -> io::Result<Vec<CompletionCandidate>> {
    let Some(last) = line.len().checked_sub(1).filter(|last| *last > 0) else {
        return Ok(Vec::new());
    };
    let is_empty = line[last].is_empty();
    let folder = std::env::current_dir().ok();
    let found = clap_complete::engine::complete(
        &mut parser::command().disable_help_subcommand(true),
        line,
        last,
        folder.as_deref(),
    )?;
    // Options are offered once their first dash is typed.
    Ok(found.into_iter().filter(|found| !(is_empty && is_option(found.get_value()))).collect())
}

fn is_option(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// The script that teaches a shell to ask.
pub(super) fn script(shell: Shell, out: &mut dyn Write) -> io::Result<()> {
    match shell {
        Shell::Bash => out.write_all(BASH.as_bytes()),
        Shell::Zsh => out.write_all(ZSH.as_bytes()),
        Shell::Fish => out.write_all(FISH.as_bytes()),
        // These know commands and options, and nothing of hosts and runs.
        shell => {
            // The generator cannot report an error, so it writes to memory.
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut parser::shown(), "datapump", &mut text);
            out.write_all(&text)
        }
    }
}

const BASH: &str = r#"# Completion of datapump for bash 4.4 or later.
_datapump() {
    local rest=$COMP_LINE words=() word found i
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        # Bash ends a word at each colon; what no blank separates is one word.
        if [[ $i -gt 0 && $rest != [[:blank:]]* ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#"${rest%%[![:blank:]]*}"}
        rest=${rest#"$word"}
    done
    local typed=${words[-1]}
    mapfile -t found < <("$1" complete -- "${words[@]:1}" 2>/dev/null)
    COMPREPLY=()
    for word in "${found[@]%%$'\t'*}"; do
        # It replaces only what follows the last colon or equals sign.
        COMPREPLY+=("$(printf %q "${word#"${typed%"${typed##*[:=]}"}"}")")
    done
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:/] ]] && compopt -o nospace
    return 0
}
complete -o nosort -F _datapump datapump
"#;

const ZSH: &str = r#"#compdef datapump
# Completion of datapump for zsh.
_datapump() {
    local -a found
    local line word
    for line in "${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        word=${line%%$'\t'*}
        [[ -z $word ]] && continue
        if [[ $word == *[:/] ]]; then
            compadd -S '' -- "$word"
        else
            found+=("${word//:/\\:}:${line#*$'\t'}")
        fi
    done
    (( ${#found} )) && _describe -V datapump found
}
if [[ ${funcstack[1]} == _datapump ]]; then
    _datapump "$@"
else
    compdef _datapump datapump
fi
"#;

const FISH: &str = r#"# Completion of datapump for fish 3.4 or later.
function __datapump_complete
    set -l words (commandline -opc)
    $words[1] complete -- $words[2..-1] "$(commandline -ct)" 2>/dev/null
end
complete -c datapump -f -a '(__datapump_complete)'
"#;

/// So many runs are offered.
const RUNS_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &[&str]) -> Vec<String> {
        let line = std::iter::once("datapump").chain(line.iter().copied()).map(OsString::from);
        let found = candidates(line.collect()).unwrap();
        found.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn what_is_offered() {
        let cases: [(&[&str], &[&str], &[&str]); 9] = [
            (&[""], &["copy", "net-test", "results"], &["peer", "probe", "complete", "-", "help"]),
            (&["results", ""], &["list", "show", "export"], &["-", "help"]),
            (&["model", "f"], &["fit"], &["show"]),
            (&["measure", "d"], &["disk-source", "disk-net-disk"], &["net", "-"]),
            (&["copy", "--sea"], &["--seal"], &["--streams"]),
            (&["copy", "--seal", ""], &["tls", "auth", "off"], &["-", "--seal"]),
            (&["copy", "--seal="], &["--seal=tls", "--seal=off"], &["-"]),
            (&["copy", "a", "--"], &["--streams", "--recursive"], &["-"]),
            (&["completions", ""], &["bash", "zsh", "fish"], &["-"]),
        ];
        for (line, expected, not) in cases {
            let found = offered(line);
            let has = |word: &&&str| found.iter().any(|found| found == **word);
            assert!(expected.iter().all(|word| has(&word)), "{line:?}: {found:?}");
            assert!(!not.iter().any(|word| has(&word)), "{line:?}: {found:?}");
        }
    }

    #[test]
    fn the_names_that_ssh_knows() {
        let config = "Host dtn1 dtn2 *.lab !x\n  HostName a\nhost=b\n# Host no\nMatch all\n";
        assert_eq!(of_config(config), ["b", "dtn1", "dtn2"].map(String::from).into());
        let known = "|1|aGFzaA= ssh-rsa A\n[h]:2222 ssh-rsa A\nh1,10.0.0.1 ssh-rsa A\n@cert x y\n";
        assert_eq!(of_known_hosts(known), ["10.0.0.1", "h1"].map(String::from).into());
    }
}
