/**
 * @file expression.h
 * Evaluates arithmetic in files: numbers, names, + - * / // %, comparisons, !, && and ||, and
 * `condition ? a : b`, with C's precedence. Internal to workloads/.
 *
 * `//` rounds the quotient down. A division by zero is 0. With `is_whole`, as in a shell, it is an
 * error, `/` truncates, and numbers above 2^53 are errors.
 */
#ifndef TY_WORKLOADS_EXPRESSION_H
#define TY_WORKLOADS_EXPRESSION_H

#include <stdbool.h>

typedef struct ty_expression {
    const char *at; /* the text; after reading, the end of the expression */
    /** Reads the name at `at`. @return its end; NULL: unknown */
    const char *(*name)(void *context, const char *at, double *value);
    void *context;
    bool is_whole;
    int deepest;   /* most nested parentheses */
    bool is_wrong; /* [out] the value is unknown */
} ty_expression;

/** The value of the expression; the caller checks the text after it. */
double ty_expression_read(ty_expression *expression);

#endif
