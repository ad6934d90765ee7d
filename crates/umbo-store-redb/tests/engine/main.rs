//! What the engine promises beyond the contract: folders, reclaiming, kills.

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod fences;
#[cfg(test)]
mod folder;
#[cfg(test)]
mod idempotency;
#[cfg(test)]
mod kill;
#[cfg(test)]
mod reclaim;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod sizes;
