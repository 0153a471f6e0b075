/** A tool as the host keeps it: its JSON schema is made once, not per model call. */
import type { JsonObject } from '../json.ts';
import type { AnyTool } from '../plugin-api/define-tool.ts';

export interface RegisteredTool {
  readonly plugin: string;
  readonly definition: AnyTool;
  /** JSON schema of the arguments, as models want it. */
  readonly parameters: JsonObject;
}
