/**
 * `request-promise` is deprecated and has open advisories; matrix-bot-sdk imports it for its default HTTP function only.
 * matrix-oracle sets its own (undici) before the first call, so a call that arrives here is a bug and says so.
 */
module.exports = function requestpromise() {
  throw new Error('request-promise is a stand-in: set a request function with setRequestFn() first (docs/dependencies.md).');
};
