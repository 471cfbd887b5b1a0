# The menu; the work is in xtask, so nothing here needs just.

# format, clippy, unit and tidy tests
check:
    cargo xtask check

# everything that CI runs
test:
    cargo xtask test

# exactly what CI runs
ci:
    .ci/run

# datapump beside its peers: just bench --peer wdt=/opt/bin/wdt
bench *OPTIONS:
    cargo xtask bench peers {{OPTIONS}}

# the two-host simulation: just sim --seed 7
sim *OPTIONS:
    cargo xtask sim {{OPTIONS}}

# libFuzzer: just fuzz message --minutes 30
fuzz *OPTIONS:
    cargo xtask fuzz {{OPTIONS}}

# copies whose processes are killed: just torture --rounds 200
torture *OPTIONS:
    cargo xtask torture {{OPTIONS}}

# the sink in a guest that loses its power: just power-cut --rounds 5
power-cut *OPTIONS:
    cargo xtask power-cut {{OPTIONS}}

# two hosts and a WAN between them: just wan up --rate 100Mbit --rtt 102ms
wan *OPTIONS:
    cargo xtask wan {{OPTIONS}}
