import { expect, test } from "vitest";
import { DEEDS, MATRIX, PHASES, THREADS } from "../../support/supervisor-matrix.js";

test("the supervisor matrix has a cell for every deed on every thread in every phase, or says why there is none", () => {
  expect(Object.keys(MATRIX)).toEqual([...THREADS]);
  for (const thread of THREADS) {
    expect(Object.keys(MATRIX[thread]), thread).toEqual([...PHASES]);
    for (const phase of PHASES) {
      expect(Object.keys(MATRIX[thread][phase]).sort(), `${thread} ${phase}`).toEqual([...DEEDS].sort());
      for (const cell of Object.values(MATRIX[thread][phase]))
        expect("cannotBe" in cell ? cell.cannotBe : cell.turn).toMatch(/\w/);
    }
  }
});
