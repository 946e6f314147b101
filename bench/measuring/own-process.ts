import { fork } from "node:child_process";

/** How much of what a program says before it dies is shown. */
const LAST_WORDS = 2_000;

export interface OwnProcess<Answer> {
  /** What the program sent; undefined when it died before. */
  readonly answer: Answer | undefined;
  readonly died: string | undefined;
}

/**
 * Runs a program in a process of its own and waits for the one message it sends. What is done to that process, or written
 * to its output, is not done to the bench.
 */
export function inOwnProcess<Answer>(program: URL, args: readonly string[]): Promise<OwnProcess<Answer>> {
  return new Promise((resolve, reject) => {
    const child = fork(program, [...args], { stdio: ["ignore", "ignore", "pipe", "ipc"] });
    let answer: Answer | undefined;
    let words = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      words = (words + text).slice(-LAST_WORDS);
    });
    child.on("message", (message) => {
      answer = message as Answer;
    });
    child.on("error", reject);
    child.on("close", (code, signal) => {
      const died = code === 0 ? undefined : `It ended with ${signal ?? code}. ${words}`;
      if (answer === undefined && died === undefined) reject(new Error(`${program} sent nothing. ${words}`));
      else resolve({ answer, died });
    });
  });
}

/** As {@link inOwnProcess}, for programs that must not die. */
export async function answerOf<Answer>(program: URL, args: readonly string[]): Promise<Answer> {
  const { answer, died } = await inOwnProcess<Answer>(program, args);
  if (answer === undefined || died !== undefined) throw new Error(`${program} ${args.join(" ")}: ${died}`);
  return answer;
}

/** The other side: says what was measured and lets the process end. */
export function answerWith(answer: unknown): void {
  if (process.send === undefined) throw new Error("This program is run by a bench.");
  process.send(answer, () => process.disconnect());
}
