import { rounded } from "./sampling.js";

/** What a figure must come to. */
export interface Bar {
  readonly id: string;
  readonly says: string;
  /** Without either the figure is shown and judged by nobody. */
  readonly atMost?: number;
  readonly atLeast?: number;
}

export interface Table {
  readonly title: string;
  readonly columns: readonly string[];
  readonly rows: readonly (readonly (string | number)[])[];
}

export interface BenchResult {
  /** By the ids of the bars. */
  readonly ratios: Readonly<Record<string, number>>;
  /** What the ratios were made of. */
  readonly samples: Readonly<Record<string, unknown>>;
  readonly tables: readonly Table[];
  /** What a reader must know to read the figures rightly. */
  readonly notes: readonly string[];
}

export interface BenchRun {
  readonly quick: boolean;
  /** Only these variants, for profiling one at a time. */
  readonly only: readonly string[];
  readonly progress: (line: string) => void;
}

/** One question, answered by measuring. */
export interface Bench {
  readonly name: string;
  readonly question: string;
  readonly bars: readonly Bar[];
  run(run: BenchRun): Promise<BenchResult>;
}

export function asJson({ name }: Bench, { ratios, samples }: BenchResult): string {
  return JSON.stringify({ bench: name, ratios, samples }, (_, value) =>
    typeof value === "number" ? rounded(value) : value,
  );
}

export function asText(bench: Bench, result: BenchResult): string {
  const judged = {
    title: bench.question,
    columns: ["figure", "measured", "bar", "", "what it is"],
    rows: bench.bars
      .filter(({ id }) => result.ratios[id] !== undefined)
      .map((bar) => {
        const measured = result.ratios[bar.id] as number;
        return [bar.id, measured, limitOf(bar), mark(bar, measured), bar.says];
      }),
  };
  const blocks = [judged, ...result.tables].map(tableText);
  if (result.notes.length > 0) blocks.push(result.notes.map((note) => `- ${note}`).join("\n"));
  return blocks.join("\n\n");
}

function limitOf({ atMost, atLeast }: Bar): string {
  if (atMost !== undefined) return `<= ${atMost}`;
  return atLeast === undefined ? "-" : `>= ${atLeast}`;
}

function mark({ atMost, atLeast }: Bar, measured: number): string {
  if (atMost === undefined && atLeast === undefined) return "";
  return measured <= (atMost ?? Number.POSITIVE_INFINITY) && measured >= (atLeast ?? 0) ? "✓ pass" : "✗ FAIL";
}

function tableText({ title, columns, rows }: Table): string {
  const texts = rows.map((row) => row.map((cell) => (typeof cell === "number" ? String(rounded(cell)) : cell)));
  const widths = columns.map((column, i) => Math.max(column.length, ...texts.map((row) => row[i]?.length ?? 0)));
  const isNumeric = columns.map((_, i) => rows.some((row) => typeof row[i] === "number"));
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, i) => (isNumeric[i] ? cell.padStart(widths[i] as number) : cell.padEnd(widths[i] as number)))
      .join("  ")
      .trimEnd();
  return [title, line(columns), line(widths.map((width) => "─".repeat(width))), ...texts.map(line)].join("\n");
}
