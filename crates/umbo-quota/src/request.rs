//! The input of the limiter: the subject of a request, a hint of its work, its retry ticket and its
//! price multiplier.

use umbo_types::PriceMultiplier;

use crate::cost::CostHint;
use crate::retry_ticket::BroughtTicket;
use crate::subject::Subject;

/// A request as the limiter sees it.
#[derive(Debug, Clone, Copy)]
pub struct QuotaRequest<'a> {
    /// The subject of the request. The operation is one of the data plane.
    pub subject: Subject<'a>,
    /// A hint of the work, before it is done.
    pub hint: CostHint,
    /// The retry ticket that it brings, signed for its caller.
    pub ticket: Option<BroughtTicket>,
    /// The price multiplier of an overload, if it is known already: see
    /// [`Limiter::admit_shards`](crate::Limiter::admit_shards).
    pub price_multiplier: PriceMultiplier,
}
