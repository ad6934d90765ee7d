//! Shared parts of the help pages: the texts and the examples of all commands, from `help.txt` and `examples.txt`.
//! Options of every command are described on the first page only.

use clap::Command;

const COMMON: &str = "Options of every command (--server, --token, -o, …): umbo --help";

/// Texts below the options, by command. A command is named as in the examples.
const TEXTS: &str = include_str!("help.txt");

/// Examples by command. A command is named by its path, like `kv get`, and the first page is named `umbo`.
const EXAMPLES: &str = include_str!("examples.txt");

/// Returns the lines of a list for the command at a path: those between its name and the next name.
fn section(list: &'static str, path: &str) -> impl Iterator<Item = &'static str> {
    let name = format!("[{}]", if path.is_empty() { "umbo" } else { path });
    let own = list.lines().skip_while(move |line| *line != name);
    own.skip(1).take_while(|line| !line.starts_with('['))
}

/// Returns the examples of the command at a path.
fn of(path: &str) -> impl Iterator<Item = &'static str> {
    section(EXAMPLES, path).filter(|line| !line.is_empty())
}

/// Adds the examples to the help pages of a command tree, and hides the options of every command on all pages but the
/// first.
pub(super) fn add_to(mut tree: Command) -> Command {
    // Gives the options of every command to each of them.
    tree.build();
    add(tree, "")
}

fn add(mut command: Command, path: &str) -> Command {
    let text = section(TEXTS, path).collect::<Vec<_>>().join("\n");
    let text = Some(text.trim_end().to_owned()).filter(|text| !text.is_empty());
    let examples = of(path).map(|example| format!("\n  {example}"));
    let examples = format!("Examples:{}", examples.collect::<String>());
    let mut parts: Vec<String> = text.into_iter().chain([examples]).collect();
    if !path.is_empty() {
        parts.push(COMMON.to_owned());
        command = command.mut_args(|arg| {
            let is_common = arg.is_global_set();
            arg.hide(is_common)
        });
    }
    command = command.after_help(parts.join("\n\n"));
    let names: Vec<String> = command
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    for name in names.iter().filter(|name| *name != "help") {
        let below = format!("{path} {name}").trim().to_owned();
        command = command.mut_subcommand(name, |one| add(one, &below));
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory as _;

    fn pages(command: &Command, path: &str, found: &mut Vec<String>) {
        found.push(path.to_owned());
        for below in command
            .get_subcommands()
            .filter(|one| one.get_name() != "help")
        {
            pages(below, format!("{path} {}", below.get_name()).trim(), found);
        }
    }

    #[test]
    fn every_page_has_examples_that_are_right() {
        let (tree, mut found) = (Cli::command(), Vec::new());
        pages(&tree, "", &mut found);
        let mut wrong = Vec::new();
        for path in found {
            if of(&path).next().is_none() {
                wrong.push(format!("'{path}' has none"));
            }
            for example in of(&path) {
                let own = example
                    .split([' ', '|', '>'])
                    .filter(|word| !word.is_empty());
                let end = example.find(['|', '>']).unwrap_or(example.len());
                assert!(
                    own.count() > 0 && example[..end].starts_with("umbo"),
                    "{example}"
                );
                let words = example[..end].replace("'broken crawler'", "reason");
                if let Err(error) = Cli::command().try_get_matches_from(words.split_whitespace()) {
                    wrong.push(format!("{example}: {error}"));
                }
                if !example.contains(path.split(' ').next_back().unwrap_or_default()) {
                    wrong.push(format!("{example} is no example of '{path}'"));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_text_is_of_a_command() {
        let (tree, mut found) = (Cli::command(), vec!["umbo".to_owned()]);
        pages(&tree, "", &mut found);
        let names = TEXTS.lines().filter_map(|line| line.strip_prefix('['));
        let names: Vec<_> = names.map(|line| line.trim_end_matches(']')).collect();
        assert!(names.len() > 10, "{names:?}");
        for name in names {
            assert!(found.iter().any(|path| path == name), "{name}");
            assert!(section(TEXTS, name).next().is_some(), "{name}");
        }
    }

    #[test]
    fn options_of_every_command_are_described_once() {
        let mut tree = add_to(Cli::command());
        let first = tree.render_long_help().to_string();
        assert!(first.contains("--ca-file") && first.contains("--timeout"));
        let get = tree
            .find_subcommand_mut("kv")
            .and_then(|kv| kv.find_subcommand_mut("get"));
        let get = get
            .map(|get| get.render_long_help().to_string())
            .unwrap_or_default();
        assert!(
            !get.contains("--ca-file") && get.contains("umbo kv get demo"),
            "{get}"
        );
        assert!(get.lines().count() < 36, "{get}");
    }
}
