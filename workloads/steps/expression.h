/**
 * @file expression.h
 * Arithmetic written in files: numbers, names, + - * / // %, comparisons, !, && and ||, and
 * `condition ? a : b`, with C's precedence. Internal to workloads/.
 *
 * `//` rounds the quotient down. A division by zero is 0, unless `is_whole` is set: then it is
 * wrong, `/` truncates, and numbers beyond 2^53 are wrong, as in a shell.
 */
#ifndef TY_WORKLOADS_EXPRESSION_H
#define TY_WORKLOADS_EXPRESSION_H

#include <stdbool.h>

typedef struct ty_expression {
    const char *at; /* the text; after reading, where the expression ended */
    /** Reads the name at `at`. @return where it ends; NULL: it is not known */
    const char *(*name)(void *context, const char *at, double *value);
    void *context;
    bool is_whole;
    int deepest;   /* parentheses in one another */
    bool is_wrong; /* [out] the value is not known */
} ty_expression;

/** The value of the expression; what follows it is for the caller to check. */
double ty_expression_read(ty_expression *expression);

#endif
