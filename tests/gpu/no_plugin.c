/* A shared library like any other. */
int mr_no_plugin(void);

int mr_no_plugin(void)
{
    return 1;
}
