/**
 * Every bound on something a stranger can choose (G14), in one table, so that "is this limited?" is answered by reading one file.
 * Sizes in bytes unless the name says otherwise, times in milliseconds. What an operator may change is in config.ts instead.
 */
export const LIMITS = {
  // appservice endpoint. Synapse sends at most 100 events a transaction; 99 × 60 kB were measured as 5.97 MB (research/synapse.md §5).
  transactionBodyBytes: 32 * 1024 * 1024,
  transactionMaxEvents: 1_000,
  eventBytes: 256 * 1024,
  pingBodyBytes: 64 * 1024,
  // admission, before any cryptography
  senderBucketBurst: 30,
  senderBucketPerSecond: 1,
  serverBucketBurst: 300,
  serverBucketPerSecond: 20,
  floodBucketsKept: 10_000,
  /** Joins and declines that wait for servers we do not trust; the homeserver may wait a minute for each. */
  roomMovesAtOnce: 16,
  roomMovesAtOncePerServer: 2,
  promptChars: 64_000,
  overheardChars: 4_000,
  lateNoticePerRoomMs: 15 * 60_000,
  refusalNoticeRepeatMs: 60_000,
  authorityNoticeRepeatMs: 6 * 60 * 60_000,
  activeThreadMs: 30 * 60_000,
  gapWaitMs: 60_000,
  // encrypted messages whose key is not here: keys come on another connection, so being overtaken by the message is normal
  /** From receipt: so long the room's order is kept. */
  keyWaitMs: 3_000,
  /** From parking: then the person is asked to send it again. */
  parkedTellMs: 60_000,
  parkedEndMs: 24 * 60 * 60_000,
  parkedPerSenderAndRoom: 200,
  // UCAN
  invocationBytes: 4 * 1024,
  carBlocks: 9,
  carBlockBytes: 4_000,
  invocationLifetimeS: 300,
  /** Of the bearer tokens that HTTP_LEGACY_AUTH lets in. */
  legacyInvocationLifetimeS: 900,
  clockSkewS: 60,
  nbDepth: 4,
  nbStringChars: 512,
  /** Of one grant with its proofs; an event may carry two in `dlg`, together as large. */
  delegationBytes: 16 * 1024,
  proofsPerLink: 2,
  proofDepth: 5,
  pathsPerToken: 16,
  signaturesPerToken: 16,
  issuersPerToken: 8,
  actingGrantLifetimeS: 30 * 24 * 60 * 60,
  sessionGrantLifetimeS: 24 * 60 * 60,
  grantsPerDid: 50,
  revocationsPerDid: 1_000,
  /** New ones that one account sends in events, or one DID over HTTP: each leaves a row in the audit log for good, and DIDs cost nothing. */
  grantsStoredPerHour: 60,
  /** A link to the authorise page, and what was made with it until the person confirms. */
  authoriseLinkMs: 15 * 60_000,
  authoriseLinkRepeatMs: 60_000,
  /** After `key rotate`: grants made out to the old DID still count, and its key still mints. */
  oldKeyMs: 30 * 24 * 60 * 60_000,
  downstreamLifetimeS: 300,
  didDocumentBytes: 64 * 1024,
  didTimeoutMs: 3_000,
  didCacheMs: 60_000,
  didsCached: 10_000,
  stateGrantBytes: 64 * 1024,
  // answers
  partTextBytes: 12_000,
  partEventBytes: 40_000,
  editsPerMessage: 20,
  htmlTagsPerPart: 3_000,
  outboxDeadlineMs: 24 * 60 * 60_000,
  outboxAttemptTimeoutMs: 65_000,
  // model and tools
  modelReplyChars: 400_000,
  toolArgumentsBytes: 32 * 1024,
  /** Deeper than any schema; thousands of levels overflow the stack of whoever walks through them. */
  toolArgumentsDepth: 64,
  toolResultChars: 20_000,
  toolTimeoutMs: 60_000,
  modelCallsPerRun: 25,
  toolCallsPerRun: 50,
  // files of rooms
  fileBytes: 8 * 1024 * 1024,
  fileNameChars: 255,
  /** Of one download or upload; a file of another server is fetched from there first. */
  fileTimeoutMs: 60_000,
  // plugins
  pluginBootHookMs: 30_000,
  /** Of a hook that a turn waits for. */
  pluginHookMs: 2_000,
  pluginCloseMs: 5_000,
  pluginToolsPerTurn: 100,
  pluginRouteMs: 60_000,
  // sidecar
  httpBodyBytes: 256 * 1024,
  httpMessageChars: 32_000,
  requestIdChars: 128,
  sseFrameBytes: 64 * 1024,
  sseBufferBytes: 64 * 1024,
  sseHeartbeatMs: 15_000,
  sseStalledMs: 60_000,
  sseStreamsPerCaller: 16,
  /** Of a ticket for `EventSource`; and how many an account may hold unused, and all together. */
  ticketMs: 60_000,
  ticketsPerCaller: 16,
  tickets: 10_000,
  httpRequestTimeoutMs: 30_000,
  httpRequestsPerMinutePerAddress: 600,
  httpRefusalsPerMinutePerAddress: 60,
  sessionsOpenedPerMinute: 10,
  sessionsPage: 100,
  runsPage: 100,
  /** Among so many of a person's runs one page looks for those of a status. */
  runsLookedAt: 1_000,
  historyPage: 200,
  // matrix client
  /** Members of all rooms that are kept in memory, some 200 bytes each: anybody may invite us into large rooms. */
  roomMembersKept: 500_000,
  matrixResponseBytes: 64 * 1024 * 1024,
  matrixTimeoutMs: 60_000,
  historyPagesAfterJoin: 20,
  gapPages: 200,
  // keys of encrypted rooms. Synapse hands out at most 100 to-device events at a time; anybody may send them.
  toDeviceEvents: 10_000,
  toDeviceEventBytes: 128 * 1024,
  /** Of those, so many go to the engine at a time: one call has its limit. */
  toDeviceEventsAtOnce: 100,
  deviceListUsers: 50_000,
  /** Of one person: their homeserver may name any number, and each costs 5 ms of CPU, a channel and a copy of every room key. */
  devicesPerUser: 500,
  syncPositionChars: 1_024,
} as const;
