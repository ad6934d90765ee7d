//! Rules of the house that no compiler knows, as tests. Each failure names the file and the rule.
//!
//! Owns the rules about files (`files`), words (`words`, `glossary`), names of types (`type_names`), circles of
//! modules (`cycles`), calls of the store (`store_calls`), how far a subject is spread (`subjects`), the arrows between
//! crates (`arrows`), pages about mechanisms (`pages`), waits of tests and process tests that were flaky (`waits`), the
//! areas that changes touch (`areas`), and the budget of lines, long functions and prose (`budget`).
//! Formatting, lints and licences have tools of their own.

#[cfg(test)]
mod areas;
#[cfg(test)]
mod arrows;
#[cfg(test)]
mod budget;
#[cfg(test)]
mod cycles;
#[cfg(test)]
mod files;
#[cfg(test)]
mod glossary;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod store_calls;
#[cfg(test)]
mod subjects;
#[cfg(test)]
mod tree;
#[cfg(test)]
mod type_names;
#[cfg(test)]
mod waits;
#[cfg(test)]
mod words;
