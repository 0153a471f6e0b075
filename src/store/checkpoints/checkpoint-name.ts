/** Which file holds an owner's checkpoints: a hash, because owner ids hold characters that file names must not, and a folder listing should not name people. */
import type { OwnerId } from '../../ids.ts';
import { sha256Base64Url } from '../../json.ts';

export const checkpointName = (owner: OwnerId): string => sha256Base64Url(owner);
