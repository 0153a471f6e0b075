/** One side of an emoji verification, as a person does it in Element who finds the emoji equal. */
import {
  type CryptoApi,
  type ShowSasCallbacks,
  VerificationPhase,
  type VerificationRequest,
  VerificationRequestEvent,
  VerifierEvent,
} from 'matrix-js-sdk/lib/crypto-api/index.js';

export interface VerificationOutcome {
  readonly done: boolean;
  /** `🐶 Dog` …; empty when it did not come to that. */
  readonly emoji: readonly string[];
  /** `m.user`, …; of a cancelled one. */
  readonly cancelCode: string | null;
}
const WITHIN_MS = 30_000;

export async function verifyByEmoji(
  crypto: CryptoApi,
  { userId, roomId, deviceId }: { userId: string; roomId?: string; deviceId?: string },
): Promise<VerificationOutcome> {
  const request =
    roomId === undefined
      ? await crypto.requestDeviceVerification(userId, deviceId ?? '')
      : await crypto.requestVerificationDM(userId, roomId);
  await reached(request, (phase) => phase >= VerificationPhase.Ready);
  if (request.phase === VerificationPhase.Cancelled) return { done: false, emoji: [], cancelCode: request.cancellationCode };
  const verifier = request.verifier ?? (await request.startVerification('m.sas.v1'));
  let emoji: readonly string[] = [];
  const onSas = (shown: ShowSasCallbacks) => {
    emoji = shown.sas.emoji?.map((pair) => pair.join(' ')) ?? [];
    void shown.confirm();
  };
  verifier.on(VerifierEvent.ShowSas, onSas);
  const shown = verifier.getShowSasCallbacks();
  if (shown !== null) onSas(shown);
  await verifier.verify().catch(() => undefined);
  await reached(request, (phase) => phase >= VerificationPhase.Cancelled);
  return { done: request.phase === VerificationPhase.Done, emoji, cancelCode: request.cancellationCode };
}

function reached(request: VerificationRequest, fits: (phase: VerificationPhase) => boolean): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      request.off(VerificationRequestEvent.Change, look);
    };
    const look = () => {
      if (!fits(request.phase)) return;
      end();
      resolve();
    };
    const timer = setTimeout(() => {
      end();
      reject(new Error(`the verification stands at phase ${VerificationPhase[request.phase]}`));
    }, WITHIN_MS);
    request.on(VerificationRequestEvent.Change, look);
    look();
  });
}
