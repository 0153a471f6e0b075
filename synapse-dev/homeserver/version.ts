/** One Synapse for everybody, in pip and in Docker alike: what we know of its behaviour was measured on exactly this one. */
export const SYNAPSE_VERSION = '1.163.2';
export const SYNAPSE_IMAGE = `matrixdotorg/synapse:v${SYNAPSE_VERSION}`;
