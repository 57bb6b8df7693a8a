//! `tollgate completions` and `tollgate man`: what a shell and a manual know of the command line, made from its definition.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::{Args, Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use serde_json::json;

use super::{
    Arguments,
    output::{self, OutputOption},
};

#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

const HELP: &str = "\
Examples:

  tollgate completions bash > /etc/bash_completion.d/tollgate
  tollgate completions zsh > \"${fpath[1]}/_tollgate\"
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish";

#[derive(Args)]
pub(crate) struct Manual {
    /// The folder to write the pages to, e.g. /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    output: OutputOption,
}

/// Prints the completions.
pub(crate) fn completions(options: &Completions) -> Result<(), String> {
    let mut script = Vec::new();
    clap_complete::generate(
        options.shell,
        &mut Arguments::command(),
        "tollgate",
        &mut script,
    );
    output::print(String::from_utf8_lossy(&script).trim_end())
}

/// Writes a page for the program and for each of its commands that is not hidden, and with `--json` lists them.
pub(crate) fn manual(options: &Manual) -> Result<(), String> {
    let folder = &options.folder;
    let failed = |error: io::Error| format!("{} cannot be written: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let mut pages = Vec::new();
    write_pages(program, folder, &mut pages).map_err(failed)?;
    if options.output.json {
        options
            .output
            .print(String::new, &json!({ "pages": pages }))?;
    }
    Ok(())
}

fn write_pages(command: Command, folder: &Path, pages: &mut Vec<PathBuf>) -> io::Result<()> {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    for inner in shown.cloned() {
        write_pages(inner, folder, pages)?;
    }
    pages.push(Man::new(command).generate_to(folder)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn what_is_hidden_has_no_page_and_is_on_none() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Arg::new("batch").long("batch").hide(true);
        let shown = Command::new("shown").arg(secret);
        let hidden = Command::new("hidden").hide(true);
        let program = Command::new("program").subcommands([shown, hidden]);
        let mut program = program.disable_help_subcommand(true);
        program.build();
        let mut pages = Vec::new();
        write_pages(program, folder.path(), &mut pages).unwrap();
        let names = pages.iter().map(|page| page.file_name().unwrap());
        let names: Vec<_> = names.collect();
        assert_eq!(names, ["program-shown.1", "program.1"]);
        for page in pages {
            let text = std::fs::read_to_string(page).unwrap();
            assert!(
                !text.contains("hidden") && !text.contains("batch"),
                "{text}"
            );
        }
    }
}
