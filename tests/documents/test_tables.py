"""Tables with the parts of people's names in columns of their own."""

import pytest

from ec1.documents.tables import with_whole_names


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            "Who:\n\n| Of | Vorname | Nachname |\n| --- | --- | --- |\n| Fox | Ann | Lee |\n|  |  | Wu |\n\nEnd | is.",
            "Who:\n\n| Of | Vorname Nachname |\n| --- | --- |\n| Fox | Ann Lee |\n|  | Wu |\n\nEnd | is.",
        ),
        ("Surname | First name\nLee | Ann\nvan Dyk | Bo", "First name Surname\nAnn Lee\nBo van Dyk"),
        ("Nachname\tVorname\tOrt\n\nLee\tAnn\tRiga\n\nText.", "Vorname Nachname\tOrt\n\nAnn Lee\tRiga\n\nText."),
        (r"|FirstName|LastName|" "\n" r"|A\|n|Lee|", "|FirstName LastName|\n" r"|A\|n Lee|"),
        ("| First name | Seat |\n| Ann | 3 |", "| First name | Seat |\n| Ann | 3 |"),
        ("Her first name | and no last name\nAnn | Lee", "Her first name | and no last name\nAnn | Lee"),
    ],
)
def test_the_parts_of_names_are_written_together(text: str, read: str) -> None:
    assert with_whole_names(text) == read
