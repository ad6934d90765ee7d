//! Placeholder of the interface until the real policy data arrives (helper POLICY replaces this whole file).
#![allow(missing_docs, unused)]
use crate::Subject;
use crate::unit::Unit;
use std::sync::Arc;
use std::time::Duration;
use umbo_types::Operation;
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub rate: u64,
    pub burst: u64,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    Shadow,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    BuiltIn,
    File,
    Stored,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    Caller,
    User,
    Session,
    Org,
    Namespace,
    Shard,
}
impl Dimension {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::User => "user",
            Self::Session => "session",
            Self::Org => "org",
            Self::Namespace => "namespace",
            Self::Shard => "shard",
        }
    }
}
#[derive(Debug, Clone)]
pub struct Dimensions(pub Vec<Dimension>);
impl Dimensions {
    pub fn contains(&self, d: Dimension) -> bool {
        self.0.contains(&d)
    }
    pub fn iter(&self) -> impl Iterator<Item = Dimension> + '_ {
        self.0.iter().copied()
    }
}
#[derive(Debug, Clone)]
pub struct Operations(pub Vec<Operation>);
impl Operations {
    pub fn contains(&self, d: Operation) -> bool {
        self.0.is_empty() || self.0.contains(&d)
    }
}
#[derive(Debug, Clone)]
pub struct Matcher {
    pub operations: Operations,
}
#[derive(Debug, Clone)]
pub struct Policy {
    pub name: Arc<str>,
    pub matches: Matcher,
    pub per: Dimensions,
    pub unit: Unit,
    pub limit: Limit,
    pub refill: Duration,
    pub mode: Mode,
    pub status: u16,
    pub source: Source,
    pub overrides: Vec<Override>,
}
#[derive(Debug, Clone)]
pub struct Override {
    pub limit: Limit,
}

impl Policy {
    pub fn applies_to(&self, s: &Subject<'_>) -> bool {
        !self.per.contains(Dimension::User) || s.user.is_some()
    }
    pub fn limit_for(&self, _: &Subject<'_>) -> Limit {
        self.limit
    }
    pub fn is_settled_by_account(&self) -> bool {
        self.per
            .iter()
            .all(|d| matches!(d, Dimension::Caller | Dimension::Namespace))
    }
}
#[derive(Debug, Clone)]
pub struct PolicySet(pub Vec<Arc<Policy>>);
impl PolicySet {
    pub fn bind<'a>(&'a self, _: &'a str, _: &'a str) -> impl Iterator<Item = &'a Arc<Policy>> {
        self.0.iter()
    }
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.0.iter()
    }
}
impl PolicySet {
    pub fn built_in() -> Self {
        Self(vec![Arc::new(Policy {
            name: "default-caller".into(),
            matches: Matcher {
                operations: Operations(vec![]),
            },
            per: Dimensions(vec![Dimension::Caller]),
            unit: Unit::Ru,
            limit: Limit {
                rate: 1_000_000_000_000,
                burst: 1_000_000_000_000,
            },
            refill: Duration::from_millis(50),
            mode: Mode::Enforce,
            status: 429,
            source: Source::BuiltIn,
            overrides: vec![],
        })])
    }
    pub fn get(&self, name: &str) -> Option<&Arc<Policy>> {
        self.0.iter().find(|p| &*p.name == name)
    }
}
