/**
 * What the engine wants sent, in our own terms: its objects live in another memory and are freed with it, so nothing outside this folder holds one.
 */
import * as wasm from '@matrix-org/matrix-sdk-crypto-wasm';
import type { RoomId } from '../../src/ids.ts';

/** The body is JSON text, sent as it is. */
export type OutgoingRequest =
  | { readonly kind: 'keys_upload' | 'keys_query' | 'keys_claim'; readonly id: string; readonly body: string }
  /** No id: made by hand (cross-signing), the engine waits for no answer. */
  | { readonly kind: 'signatures'; readonly id: string | null; readonly body: string }
  | { readonly kind: 'to_device'; readonly id: string; readonly eventType: string; readonly txnId: string; readonly body: string }
  /** A message of a verification; `body` is the event's content. */
  | {
      readonly kind: 'room_message';
      readonly id: string;
      readonly roomId: RoomId;
      readonly eventType: string;
      readonly txnId: string;
      readonly body: string;
    };

type RawRequest =
  | wasm.KeysUploadRequest
  | wasm.KeysQueryRequest
  | wasm.KeysClaimRequest
  | wasm.ToDeviceRequest
  | wasm.SignatureUploadRequest
  | wasm.RoomMessageRequest
  | wasm.KeysBackupRequest;

/** @throws Error for a backup of keys, which is never turned on. */
export function readRequest(raw: RawRequest): OutgoingRequest {
  if (raw instanceof wasm.KeysUploadRequest) return { kind: 'keys_upload', id: raw.id, body: raw.body };
  if (raw instanceof wasm.KeysQueryRequest) return { kind: 'keys_query', id: raw.id, body: raw.body };
  if (raw instanceof wasm.KeysClaimRequest) return { kind: 'keys_claim', id: raw.id, body: raw.body };
  if (raw instanceof wasm.SignatureUploadRequest) return { kind: 'signatures', id: raw.id ?? null, body: raw.body };
  if (raw instanceof wasm.ToDeviceRequest) {
    const { id, event_type: eventType, txn_id: txnId, body } = raw;
    return { kind: 'to_device', id, eventType, txnId, body };
  }
  if (raw instanceof wasm.RoomMessageRequest) {
    const { id, room_id: roomId, event_type: eventType, txn_id: txnId, body } = raw;
    return { kind: 'room_message', id, roomId: roomId as RoomId, eventType, txnId, body };
  }
  throw new Error('the engine asked for a backup of its keys, which is not turned on');
}

const TYPE: Readonly<Record<OutgoingRequest['kind'], wasm.RequestType>> = {
  keys_upload: wasm.RequestType.KeysUpload,
  keys_query: wasm.RequestType.KeysQuery,
  keys_claim: wasm.RequestType.KeysClaim,
  to_device: wasm.RequestType.ToDevice,
  signatures: wasm.RequestType.SignatureUpload,
  room_message: wasm.RequestType.RoomMessage,
};
export const requestType = ({ kind }: OutgoingRequest): wasm.RequestType => TYPE[kind];
