/**
 * The narrow slice of Matrix that a running turn may use; implemented by the transport. `rtCtx.matrix` puts the rules in front of it
 * (rooms that the user is in as well, the user's own power level: no confused deputy, DESIGN §5) and hands plugins the seed's three methods.
 */
import type { EventId, OutboxTxnId, RoomId, RunId, UserId } from '../ids.ts';
import type { JsonObject } from '../json.ts';

export interface RoomStateEvent {
  readonly type: string;
  readonly stateKey: string;
  readonly sender: string;
  readonly content: JsonObject;
}
/** A file as it was before anything encrypted it. Name and type are what its sender says. */
export interface SharedFile {
  readonly name: string;
  readonly mimeType: string;
  readonly bytes: Uint8Array;
}
export interface FilePlace {
  readonly roomId: RoomId;
  readonly threadRoot: EventId | null;
  /** As src/runs/asked-encrypted.ts says of the message that shows the file. */
  readonly askedEncrypted: boolean;
}
export interface MatrixAccess {
  /** Sends through the outbox and waits for the homeserver's answer. The txn id makes a repeated call the same event (G4, G6). */
  send(
    event: { roomId: RoomId; runId: RunId; txnId: OutboxTxnId; eventType: string; stateKey?: string; content: JsonObject },
    signal: AbortSignal,
  ): Promise<EventId>;
  roomState(room: RoomId): Promise<readonly RoomStateEvent[]>;
  /** Decrypted where it was encrypted and can be read. */
  event(room: RoomId, event: EventId): Promise<JsonObject>;
  /** The file that this message shows. @throws OracleError when there is none, it is too large, or not the one that was sent. */
  readFile(room: RoomId, event: EventId, signal: AbortSignal): Promise<SharedFile>;
  /** Uploads it, encrypted where the room is, or the message that it answers was. @returns content of the message that shows it. */
  uploadFile(place: FilePlace, file: SharedFile, signal: AbortSignal): Promise<JsonObject>;
  /** Whether this user's own power level allows this event in the room. */
  mayUserSend(user: UserId, room: RoomId, event: { type: string; isState: boolean }): Promise<boolean>;
  /** Whether the oracle and this user have both joined the room; false when nobody can say. Without it a turn has its own room only. */
  areJoined(user: UserId, room: RoomId): Promise<boolean>;
}
