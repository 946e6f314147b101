import { type Json, messageOf, TroupeError } from "../../kernel/index.js";

/** Options for single plugins, by plugin id: each reads its own, those of others are carried along. */
export class PluginOptions {
  static readonly empty = new PluginOptions();

  readonly plugins: Readonly<Record<string, Json>>;

  constructor(plugins: Readonly<Record<string, Json>> = {}) {
    this.plugins = plugins;
  }

  /** @example PluginOptions.typed("acme.code", { format: "markdown" }) */
  static typed(pluginId: string, value: Json): PluginOptions {
    return new PluginOptions({ [pluginId]: value });
  }

  /** These options with one more entry; an earlier one of the same plugin is replaced. */
  insertTyped(pluginId: string, value: Json): PluginOptions {
    return new PluginOptions({ ...this.plugins, [pluginId]: value });
  }

  /**
   * A plugin's entry as `read` understands it; undefined without one.
   *
   * @throws `plugin_options_invalid` when `read` does.
   * @example options.decode("acme.code", z.object({ format: z.string() }).parse)
   */
  decode<T>(pluginId: string, read: (value: Json) => T): T | undefined {
    const entry = Object.hasOwn(this.plugins, pluginId) ? this.plugins[pluginId] : undefined;
    if (entry === undefined) return undefined;
    try {
      return read(entry);
    } catch (cause) {
      throw new TroupeError(
        "plugin_options_invalid",
        `The session's options for plugin ${pluginId} are not valid: ${messageOf(cause)}`,
        { details: { pluginId }, cause },
      );
    }
  }
}
