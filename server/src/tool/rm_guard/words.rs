//! Splits a command line into words and separators, as far as the guard needs it: quotes, backslashes, comments,
//! redirections, heredocs, and the few expansions that have a known value.

use std::path::Path;

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// As it is written.
    pub raw: String,
    /// Without quotes, and with expansions.
    pub text: String,
}

/// A piece of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// A word.
    Word(Word),
    /// `;`, `&`, `|` or a new line.
    End,
    /// `(` or the start of `$(…)`: a subshell.
    Open,
    /// `)`.
    Close,
}

/// Reads tokens one by one.
pub struct Reader {
    rest: Vec<char>,
    at: usize,
    /// Ends of the heredocs whose bodies begin on the next line; true: leading tabs do not count.
    heredocs: Vec<(String, bool)>,
    /// Commands inside `$(…)` of the word before, read next.
    nested: Vec<String>,
    /// The next word is the target of a redirection.
    redirected: bool,
}

impl Reader {
    /// A reader of `command`.
    pub fn new(command: &str) -> Self {
        Self {
            rest: command.chars().collect(),
            at: 0,
            heredocs: Vec::new(),
            nested: Vec::new(),
            redirected: false,
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.get(self.at + ahead).copied()
    }

    /// The next token; `home` and `dir` are what `~`, `$HOME`, `$PWD` and `$(pwd)` mean by now.
    pub fn next(&mut self, home: &Path, dir: &Path) -> Option<Token> {
        loop {
            if !self.nested.is_empty() && self.at_command_end() {
                // Read the inside of `$(…)` as commands of their own, after the command they stand in.
                let inside: String = std::mem::take(&mut self.nested).join("\n");
                let inside: Vec<char> = format!(";({inside})").chars().collect();
                self.rest.splice(self.at..self.at, inside);
            }
            match self.peek(0)? {
                '\n' => {
                    self.at += 1;
                    self.skip_heredocs();
                    return Some(Token::End);
                }
                '\\' if self.peek(1) == Some('\n') => self.at += 2,
                space if space.is_whitespace() => self.at += 1,
                '#' => self.skip_while(|character| character != '\n'),
                '&' if self.peek(1) == Some('>') => self.at += 1,
                ';' | '|' | '&' => {
                    self.at += 1;
                    return Some(Token::End);
                }
                '(' => {
                    self.at += 1;
                    return Some(Token::Open);
                }
                ')' => {
                    self.at += 1;
                    return Some(Token::Close);
                }
                '<' if self.peek(1) == Some('<') && self.peek(2) != Some('<') => {
                    self.start_heredoc(home, dir);
                }
                '<' | '>' => {
                    if self.peek(1) == Some('(') {
                        // `<(…)`: commands, read like a subshell.
                        self.at += 1;
                        continue;
                    }
                    self.skip_while(|character| matches!(character, '<' | '>' | '&' | '|'));
                    self.redirected = true;
                }
                _ => {
                    let word = self.word(home, dir);
                    let is_descriptor = word.raw.chars().all(|character| character.is_ascii_digit())
                        && matches!(self.peek(0), Some('<' | '>'));
                    if !std::mem::take(&mut self.redirected) && !is_descriptor {
                        return Some(Token::Word(word));
                    }
                }
            }
        }
    }

    fn at_command_end(&self) -> bool {
        matches!(self.peek(0), None | Some('\n' | ';' | '|' | '&' | ')'))
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek(0).is_some_and(&wanted) {
            self.at += 1;
        }
    }

    fn start_heredoc(&mut self, home: &Path, dir: &Path) {
        self.at += 2;
        let tabs = self.peek(0) == Some('-');
        self.at += usize::from(tabs);
        self.skip_while(|character| character == ' ' || character == '\t');
        let end = self.word(home, dir).text;
        self.heredocs.push((end, tabs));
    }

    fn skip_heredocs(&mut self) {
        for (end, tabs) in std::mem::take(&mut self.heredocs) {
            while self.at < self.rest.len() {
                let start = self.at;
                self.skip_while(|character| character != '\n');
                let line: String = self.rest[start..self.at].iter().collect();
                self.at += 1;
                if line == end || tabs && line.trim_start_matches('\t') == end {
                    break;
                }
            }
            self.at = self.at.min(self.rest.len());
        }
    }

    fn word(&mut self, home: &Path, dir: &Path) -> Word {
        let start = self.at;
        let mut text = String::new();
        let mut quoted = false;
        while let Some(character) = self.peek(0) {
            match character {
                '"' => {
                    quoted = !quoted;
                    self.at += 1;
                }
                '\'' if !quoted => {
                    self.at += 1;
                    while let Some(inside) = self.peek(0).filter(|inside| *inside != '\'') {
                        text.push(inside);
                        self.at += 1;
                    }
                    self.at += 1;
                }
                '\\' => {
                    match self.peek(1) {
                        Some('\n') | None => {}
                        // Inside quotes a backslash means something before few characters only.
                        Some(next) if quoted && !matches!(next, '"' | '\\' | '$' | '`') => {
                            text.extend(['\\', next]);
                        }
                        Some(next) => text.push(next),
                    }
                    self.at += 2;
                }
                '$' => self.expansion(&mut text, home, dir),
                '`' => {
                    self.at += 1;
                    let inside = self.until('`', None);
                    self.substitute(&inside, &mut text, dir);
                }
                _ if quoted => {
                    text.push(character);
                    self.at += 1;
                }
                ';' | '|' | '&' | '(' | ')' | '<' | '>' => break,
                space if space.is_whitespace() => break,
                '~' if self.at == start
                    && matches!(
                        self.peek(1),
                        None | Some('/' | ' ' | '\t' | '\n' | ';' | '&' | '|' | ')')
                    ) =>
                {
                    text.push_str(&home.to_string_lossy());
                    self.at += 1;
                }
                _ => {
                    text.push(character);
                    self.at += 1;
                }
            }
        }
        self.at = self.at.min(self.rest.len());
        Word { raw: self.rest[start..self.at].iter().collect(), text }
    }

    /// `$NAME`, `${NAME…}` and `$(…)`; what has no known value is empty.
    fn expansion(&mut self, text: &mut String, home: &Path, dir: &Path) {
        self.at += 1;
        let name = match self.peek(0) {
            Some('(') => {
                self.at += 1;
                let inside = self.until(')', Some('('));
                return self.substitute(&inside, text, dir);
            }
            Some('{') => {
                self.at += 1;
                let inside = self.until('}', Some('{'));
                let end = inside.find(|part: char| !part.is_ascii_alphanumeric() && part != '_');
                inside[..end.unwrap_or(inside.len())].to_owned()
            }
            Some(first) if first.is_ascii_alphabetic() || first == '_' => {
                let start = self.at;
                self.skip_while(|part| part.is_ascii_alphanumeric() || part == '_');
                self.rest[start..self.at].iter().collect()
            }
            // `$1`, `$?`, `$@` and the like.
            Some(special) if special.is_ascii_digit() || "?@*#!$-".contains(special) => {
                self.at += 1;
                return;
            }
            _ => return text.push('$'),
        };
        match name.as_str() {
            "HOME" => text.push_str(&home.to_string_lossy()),
            "PWD" => text.push_str(&dir.to_string_lossy()),
            _ => {}
        }
    }

    /// The output of `$(pwd)` is known; that of other commands is empty, but they are read too.
    fn substitute(&mut self, inside: &str, text: &mut String, dir: &Path) {
        if inside.trim() == "pwd" {
            text.push_str(&dir.to_string_lossy());
        } else {
            self.nested.push(inside.to_owned());
        }
    }

    /// Up to the `close` that belongs here, and past it.
    fn until(&mut self, close: char, open: Option<char>) -> String {
        let mut depth = 0;
        let mut inside = String::new();
        while let Some(character) = self.peek(0) {
            self.at += 1;
            if character == close && depth == 0 {
                break;
            }
            if Some(character) == open {
                depth += 1;
            } else if character == close {
                depth -= 1;
            }
            inside.push(character);
        }
        inside
    }
}
