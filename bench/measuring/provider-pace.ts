/** What the local provider says, again and again, and how often: fifty tokens a second. */
export const TOKEN = " word";
export const TOKEN_MS = 20;
