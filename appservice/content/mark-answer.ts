/**
 * A run that ends early keeps the text it has (G9), and the reader must see that it is not the whole answer. The marker is appended and never
 * changes what stands before it, so it can be given to `growSplit` like any other text.
 */
import { closing, openFence } from './fences.ts';

export type MarkerKind = 'cancelled' | 'failed' | 'interrupted' | 'unauthorised';

const MARKERS: Readonly<Record<MarkerKind, string>> = {
  cancelled: '*Stopped on request.*',
  failed: '*The answer ends here because something went wrong. Please try again.*',
  interrupted: '*This answer was interrupted and could not be continued.*',
  unauthorised: '*I stopped here: the authorisation that this rested on was taken back or has ended.*',
};

/** What has to be appended: a fence that is still open is closed first, else the marker would be code. */
export function markerAfter(text: string, kind: MarkerKind): string {
  const marker = MARKERS[kind];
  if (text.trim() === '') return marker;
  const fence = openFence(text);
  return `${fence === undefined ? '' : closing(fence, text)}\n\n${marker}`;
}

export const withMarker = (text: string, kind: MarkerKind): string => text + markerAfter(text, kind);
