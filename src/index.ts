/** What plugin authors import: definitions, errors and types. It loads neither the agent library nor any part of the runtime. */

export type { ErrorCode, Refusal } from './errors.ts';
export { NotAvailableError, OracleError } from './errors.ts';
export type {
  CreditPolicy,
  OraclePlugin,
  PluginCategory,
  PluginContext,
  PluginEnvironment,
  PluginManifest,
  PluginRoutesContext,
  PluginStorage,
  PluginVisibility,
  RouteCaller,
} from './plugin-api/define-oracle-plugin.ts';
export { defineOraclePlugin } from './plugin-api/define-oracle-plugin.ts';
export type { SubAgentDefinition } from './plugin-api/define-sub-agent.ts';
export { defineSubAgent } from './plugin-api/define-sub-agent.ts';
export type { AnyTool, ToolCapability, ToolDefinition, ToolEffect, ToolReach, ToolVisibility } from './plugin-api/define-tool.ts';
export { defineTool } from './plugin-api/define-tool.ts';
export type {
  ActionCallEventPayload,
  BrowserToolCallEventPayload,
  HistoryHit,
  MatrixEvent,
  MergedConfig,
  MessageCacheInvalidationPayload,
  ModelRole,
  OutgoingFile,
  PluginLogger,
  PluginState,
  ReadonlyState,
  ReasoningEventPayload,
  RenderComponentEventPayload,
  RoomFile,
  RoomStateSnapshot,
  RouterEventPayload,
  RuntimeContext,
  SecretIndex,
  SharedAccessors,
  ToolCallEventPayload,
  UcanDelegation,
  UserContextData,
} from './runtime-context/runtime-context.ts';
