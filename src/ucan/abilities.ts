/** The abilities that this product gives a meaning to; everything else in a grant is a service's, and only compared. */

/** An invocation for one message or one writing request. A grant of it to the oracle would let the oracle speak as the person: refused. */
export const MESSAGE_ABILITY = 'oracle/message';
/** An invocation for reading the own sessions and grants over HTTP. */
export const READ_ABILITY = 'oracle/read';
/** In an acting grant made on the authorise page: the oracle may answer this account (`nb.sender`) as this DID. */
export const CHAT_ABILITY = 'oracle/chat';
