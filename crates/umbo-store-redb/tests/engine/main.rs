//! The engine on files: the contract, and what it promises beyond: folders, reclaiming, kills.

#![cfg(test)]

mod backup;
mod cluster;
mod contract;
mod fences;
mod folder;
mod idempotency;
mod kill;
mod reclaim;
mod rows;
mod sizes;
