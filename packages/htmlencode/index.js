/**
 * `htmlencode` calls the deprecated `util._extend` when it is imported, and every start would print that warning. matrix-bot-sdk needs it
 * for its `replyText` and `replyHtmlText`, which a check forbids here, so a call that arrives is a bug and says so.
 */
module.exports = {
  htmlEncode() {
    throw new Error('htmlencode is a stand-in: matrix-oracle builds event contents itself (docs/dependencies.md).');
  },
};
