/** What plugin authors import: definitions, errors and types. It loads neither the agent library nor any part of the runtime. */

export type { ErrorCode, Refusal } from './errors.ts';
export { NotAvailableError, OracleError } from './errors.ts';
export type { OraclePlugin, PluginContext, PluginManifest, PluginStorage } from './plugin-api/define-oracle-plugin.ts';
export { defineOraclePlugin } from './plugin-api/define-oracle-plugin.ts';
export type { AnyTool, ToolCapability, ToolDefinition, ToolEffect, ToolReach, ToolVisibility } from './plugin-api/define-tool.ts';
export { defineTool } from './plugin-api/define-tool.ts';
export type {
  MatrixEvent,
  MergedConfig,
  ModelRole,
  OutgoingFile,
  PluginLogger,
  ReadonlyState,
  RoomFile,
  RoomStateSnapshot,
  RuntimeContext,
  SharedAccessors,
  UcanDelegation,
  UserContextData,
} from './runtime-context/runtime-context.ts';
