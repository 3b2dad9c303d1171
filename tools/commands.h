/* One row a command: what moeref.c dispatches, and what `moeref help` prints. */
#ifndef MOEREF_TOOLS_COMMANDS_H
#define MOEREF_TOOLS_COMMANDS_H

int cmd_export(int argc, char **argv);
int cmd_gen(int argc, char **argv);
int cmd_identify(int argc, char **argv);
int cmd_profiles(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_reveal(int argc, char **argv);
int cmd_route(int argc, char **argv);
int cmd_router(int argc, char **argv);
int cmd_verify(int argc, char **argv);

extern const char help_export[], help_gen[], help_identify[], help_profiles[], help_replay[],
    help_reveal[], help_route[], help_router[], help_verify[];

#endif
