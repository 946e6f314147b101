import type { StandardSchemaV1 } from "@standard-schema/spec";
import type { ToolOutput } from "../../kernel/index.js";
import type { SchemaInput } from "../../plugin/index.js";
import type { OperationReceipt } from "../../session/index.js";

export interface OperationOptions {
  /** The session the operation is about, when it is not the one it is called on. */
  readonly sessionId?: string;
  /** Names the call: asked again under the same key, a command or task is answered, not repeated. */
  readonly key?: string;
  readonly signal?: AbortSignal;
}

/**
 * The operations of a plugin, as methods. `P` is the plugin's type (`typeof plugin`). A plugin that registers, and one
 * whose type is not given, has operations nobody can list beforehand: every name can be called, with `unknown`
 * arguments and answers, and the session says whether there is such an operation.
 *
 * @example
 * const remote: PluginRemote<typeof notes> = session.plugin<typeof notes>("acme.notes");
 * await remote["notes.add"]({ text: "milk" });
 * await remote.notes.add({ text: "eggs" }, AbortSignal.timeout(1_000));
 * const { output, events } = await remote.receipt("notes.add", { text: "flour" }, { key: "order-17" });
 */
export type PluginRemote<P = unknown> = Dotted<Operations<P>> &
  Namespace<Operations<P>, NotAnOperation | "receipt", Undeclared<P>> &
  Receipts<Operations<P>> &
  (Undeclared<P> extends AnyOperations ? AnyReceipts : unknown);

/** The id a plugin was defined with; any text for a plugin whose type is not given. */
export type PluginIdOf<P> = P extends { readonly id: infer Id extends string } ? Id : string;

/** What an operation is called with, and what it answers. */
interface Operation {
  readonly args: unknown;
  readonly answer: unknown;
}

/** The operations a plugin declares, by name. */
type Operations<P> = {
  [Name in keyof Field<P, "queries">]: Answering<Field<P, "queries">[Name], Result<Field<P, "queries">[Name]>>;
} & {
  [Name in keyof Changes<P>]: Answering<Changes<P>[Name], OutputOf<Result<Changes<P>[Name]>>>;
} & {
  [Name in keyof Field<P, "actions">]: { args: Args<Field<P, "actions">[Name]>; answer: ToolOutput };
};

type Field<P, Name extends string> = P extends { readonly [F in Name]: infer Declared } ? Declared : unknown;
type Changes<P> = Field<P, "commands"> & Field<P, "tasks">;

/** An output schema has the last word on an answer, as it has at run time. */
type Answering<Declared, Otherwise> = {
  args: Args<Declared>;
  answer: Declared extends { readonly output: infer S extends StandardSchemaV1 }
    ? StandardSchemaV1.InferOutput<S>
    : Otherwise;
};
type Args<Declared> = Declared extends { readonly input: infer S } ? SchemaInput<S> : unknown;
type Result<Declared> = Declared extends { readonly run: (...args: never) => infer R } ? Awaited<R> : unknown;
type OutputOf<Outcome> = Outcome extends { readonly output: infer Output } ? Output : unknown;

/** What the plugin may have beside the operations its type tells of. */
type Undeclared<P> = unknown extends P
  ? AnyOperations
  : P extends { readonly register: unknown }
    ? AnyOperations
    : unknown;

/** Operations by their whole names. Names without a dot are in the {@link Namespace} already. */
type Dotted<Ops> = {
  readonly [Name in keyof Ops as Name extends `${string}.${string}` ? Name : never]: Call<Ops[Name]>;
};

/** Operations by the parts of their names. What is an operation and the beginning of other names is both. */
type Namespace<Ops, Reserved, Others> = Others & {
  readonly [Part in Exclude<FirstPart<keyof Ops>, Reserved>]: (Part extends keyof Ops ? Call<Ops[Part]> : unknown) &
    Namespace<Below<Ops, Part>, NotAnOperation, Others>;
};
type FirstPart<Name> = Name extends `${infer Part}.${string}` ? Part : Name;
type Below<Ops, Part> = {
  [Name in keyof Ops as Part extends string ? (Name extends `${Part}.${infer Rest}` ? Rest : never) : never]: Ops[Name];
};

interface Receipts<Ops> {
  /**
   * Calls an operation and resolves to all that came of it. An operation of the name `receipt`, or of a name that
   * objects have anyway (`then`, `toString`), has no method and can be called with this one.
   */
  receipt<Name extends keyof Ops>(
    name: Name,
    ...rest: MayBeEmpty<Ops[Name]> extends true
      ? [args?: ArgsOf<Ops[Name]>, options?: OperationOptions]
      : [args: ArgsOf<Ops[Name]>, options?: OperationOptions]
  ): Promise<OperationReceipt<AnswerOf<Ops[Name]>>>;
}

/** Arguments that may be empty may be left out. */
type Call<Op> =
  MayBeEmpty<Op> extends true
    ? (args?: ArgsOf<Op>, signal?: AbortSignal) => Promise<AnswerOf<Op>>
    : (args: ArgsOf<Op>, signal?: AbortSignal) => Promise<AnswerOf<Op>>;
type MayBeEmpty<Op> = Record<never, never> extends ArgsOf<Op> ? true : false;
type ArgsOf<Op> = Op extends Operation ? Op["args"] : unknown;
type AnswerOf<Op> = Op extends Operation ? Op["answer"] : unknown;

/** What can be called without knowing what there is. */
interface AnyOperations {
  readonly [name: string]: AnyOperation;
}
interface AnyOperation extends AnyOperations {
  (args?: unknown, signal?: AbortSignal): Promise<unknown>;
}
interface AnyReceipts {
  receipt(name: string, args?: unknown, options?: OperationOptions): Promise<OperationReceipt>;
}

/** Names the language asks objects for by itself: `await`, `JSON.stringify` and `String()` are not calls. */
type NotAnOperation = "then" | "toJSON" | keyof typeof Object.prototype;

export function pluginRemote<P>(
  operate: (name: string, args: unknown, options: OperationOptions) => Promise<OperationReceipt>,
): PluginRemote<P> {
  const method = (name: string): object => {
    const call = async (args: unknown = {}, signal?: AbortSignal) =>
      (await operate(name, args, signal === undefined ? {} : { signal })).output;
    return withMembers(call, (part) => method(`${name}.${part}`));
  };
  const receipt = (name: string, args: unknown = {}, options: OperationOptions = {}) => operate(name, args, options);
  // The compiler knows the members by `P`, the proxy makes them as they are asked for.
  return withMembers({ receipt }, (name) => (name === "receipt" ? receipt : method(name))) as PluginRemote<P>;
}

function withMembers(target: object, member: (name: string) => unknown): object {
  return new Proxy(target, {
    get: (_, name) => (typeof name === "string" && isMember(name) ? member(name) : Reflect.get(target, name)),
  });
}

function isMember(name: string): boolean {
  return name !== "then" && name !== "toJSON" && !(name in Object.prototype);
}
