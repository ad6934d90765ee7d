//! Rules of the house that no compiler knows, as tests. Each failure names the file and the rule.
//!
//! Owns the rules about files (`files`), words (`words`, `glossary`), names of types (`type_names`), circles of
//! modules (`cycles`) and the arrows between crates (`arrows`).
//! Formatting, lints and licences have tools of their own.

#[cfg(test)]
mod arrows;
#[cfg(test)]
mod cycles;
#[cfg(test)]
mod files;
#[cfg(test)]
mod glossary;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod type_names;
#[cfg(test)]
mod words;
