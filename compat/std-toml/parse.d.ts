export declare function parse(text: string): Record<string, unknown>;
