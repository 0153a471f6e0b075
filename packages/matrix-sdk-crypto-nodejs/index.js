/**
 * matrix-bot-sdk requires the native crypto binding when it is imported, although this project never uses its crypto.
 * The binding's binary cannot be downloaded on every machine, so this empty stand-in is what the import finds (docs/dependencies.md).
 */
const unavailable = (name) =>
  class {
    constructor() {
      throw new Error(`${name} is a stand-in: matrix-bot-sdk's encryption is not used in matrix-oracle (docs/dependencies.md).`);
    }
    static async initialize() {
      return new this();
    }
  };
module.exports = { OlmMachine: unavailable('OlmMachine'), StoreType: Object.freeze({ Sled: 0, Sqlite: 1 }) };
