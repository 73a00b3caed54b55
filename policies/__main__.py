"""The policy pack: `pulumi preview --policy-pack policies`."""

import datetime
import sys
from pathlib import Path

import pulumi
from pulumi_policy import EnforcementLevel, PolicyPack

# The engine runs this folder by itself, wherever the program is.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from policies.pack import Pack
from policies.servicer import install
from policies.settings import InvalidSettings, from_config


def main() -> None:
    """Serve all controls, to judge by what the stack's configuration asks for."""
    today = datetime.datetime.now(datetime.UTC).date()
    try:
        # Engines that don't call with the stack's configuration leave it in the environment.
        pack = Pack(from_config(pulumi.runtime.get_config_env()), today)
    except InvalidSettings as error:
        sys.exit(str(error))
    install(pack)
    PolicyPack(name="trainwright", policies=pack.policies, enforcement_level=EnforcementLevel.MANDATORY)


if __name__ == "__main__":
    main()
