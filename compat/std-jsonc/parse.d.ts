export declare function parse(text: string): unknown;
