#include "gnmt_shape.h"

uint32_t gnmt_edges(ty_graph_edge edges[GNMT_MOST_EDGES])
{
    static const ty_graph_edge head[] = {
        {0, 1},   {2, 1},   {1, 3},   {3, 4},   {4, 5},   {5, 6},   {6, 7},   {7, 8},   {8, 9},
        {5, 9},   {31, 32}, {30, 33}, {32, 33}, {29, 33}, {2, 33},  {33, 34}, {33, 35}, {34, 36},
        {36, 37}, {35, 37}, {31, 38}, {37, 39}, {38, 39}, {39, 40}, {40, 41}, {41, 42}, {35, 42},
        {31, 43}, {42, 44}, {43, 44}, {44, 45}, {45, 46}, {40, 46}, {76, 77}};
    uint32_t count = 0;

    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        edges[count++] = head[i];
    for (uint32_t a = 9; a < 29; a += 4) /* dropout, lstm, item, residual */
        for (uint32_t k = 0; k < 5; k++)
            edges[count++] = k < 4 ? (ty_graph_edge){a + k, a + k + 1} : (ty_graph_edge){a, a + 4};
    for (uint32_t a = 46; a < 76; a += 6) {
        const ty_graph_edge block[] = {{a, a + 1},     {a + 1, a + 2}, {35, a + 2},
                                       {31, a + 3},    {a + 2, a + 4}, {a + 3, a + 4},
                                       {a + 4, a + 5}, {a + 5, a + 6}, {a, a + 6}};
        for (size_t i = 0; i < sizeof block / sizeof *block; i++)
            edges[count++] = block[i];
    }
    return count;
}
