//! stand-in
use crate::failure::Failure;
use crate::pod::Dispatcher;
use umbo_api::admin::*;
pub(crate) fn list(_: &Dispatcher) -> TokenList {
    TokenList::default()
}
pub(crate) async fn create(_: &Dispatcher, _: &NewToken) -> Result<CreatedToken, Failure> {
    Err(Failure::LastAdmin)
}
pub(crate) async fn revoke(_: &Dispatcher, _: &str) -> Result<(), Failure> {
    Err(Failure::LastAdmin)
}
pub(crate) async fn refresh(_: &Dispatcher) -> Result<(), Failure> {
    Ok(())
}
