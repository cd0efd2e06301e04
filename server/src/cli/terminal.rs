//! Talking to people: lines on stdout and stderr, colours only on a terminal, questions only to one.

use std::io::{self, IsTerminal, Write};

/// Prints a line on stdout. A reader that has gone away is no failure.
pub fn say(line: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{line}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints rows on stdout, each column as wide as its longest cell.
pub fn table<const N: usize>(rows: &[[String; N]]) -> anyhow::Result<()> {
    let widths: [usize; N] =
        std::array::from_fn(|i| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0));
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        say(cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// Prints a line for people on stderr.
pub fn tell(line: &str) {
    // Nobody is left to tell when this fails.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints a failure: one line on stderr.
pub fn complain(text: &str) {
    tell(&format!("{} {}", coloured("31", "error:"), one_line(text)));
}

/// Prints a warning: one line on stderr.
pub fn warn(text: &str) {
    tell(&format!("{} {}", coloured("33", "warning:"), one_line(text)));
}

/// Shows how far something is, in place of what was shown before. Only where a person looks.
pub fn progress(text: &str) {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr().lock(), "\r\u{1b}[K{}", one_line(text));
    }
}

/// Makes room for other lines.
pub fn end_progress() {
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr().lock(), "\r\u{1b}[K");
    }
}

fn one_line(text: &str) -> String {
    text.trim_end().replace('\n', " ")
}

/// The text in a colour (an ANSI code) where stderr is a terminal.
pub fn coloured(code: &str, text: &str) -> String {
    if io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// Whether a person can answer questions.
pub fn can_ask() -> bool {
    io::stdin().is_terminal()
}
